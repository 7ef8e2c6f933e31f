/*
 * Code that the random programs share: numbers that depend only on a seed, a watchdog, short checks.
 */
#ifndef RANDOM_H
#define RANDOM_H

#define _POSIX_C_SOURCE 200809L
#define CL_TARGET_OPENCL_VERSION 120

#include <CL/cl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define HELPER static __attribute__((unused))

/* ---- numbers ---- */

typedef uint64_t u64;

/* SplitMix64: any seed is good, and neighbouring seeds give unrelated numbers. */
HELPER u64 next_random(u64 *state)
{
    u64 z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* The program's random numbers. Only the thread that makes the program draws from them. */
static u64 numbers;

/* Returns a number from 0 to below `end`, which is not 0. */
HELPER u64 below(u64 end)
{
    return next_random(&numbers) % end;
}

/* Returns true with this probability in percent. */
HELPER int chance(unsigned percent)
{
    return below(100) < percent;
}

HELPER u64 between(u64 first, u64 last)
{
    return first + below(last - first + 1);
}

/* ---- the current state, for reports ---- */

static u64 current_seed;

/* The steps of the current seed's program, one line each. A failure prints them. */
static char *story;
static size_t story_length, story_room;
static pthread_mutex_t story_lock = PTHREAD_MUTEX_INITIALIZER;

HELPER void tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
HELPER void tell(const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof line - 2)
        length = sizeof line - 2;
    line[length++] = '\n';
    line[length] = 0;
    pthread_mutex_lock(&story_lock);
    if (story_length + (size_t)length + 1 > story_room) {
        story_room = 2 * story_room + 4096;
        story = realloc(story, story_room);
        if (story == NULL)
            abort();
    }
    memcpy(story + story_length, line, (size_t)length + 1);
    story_length += (size_t)length;
    pthread_mutex_unlock(&story_lock);
}

HELPER void forget_story(void)
{
    pthread_mutex_lock(&story_lock);
    story_length = 0;
    if (story != NULL)
        story[0] = 0;
    pthread_mutex_unlock(&story_lock);
}

/* A program sets this function if it can describe its state. */
static void (*describe)(void);

/* Ends the program, and prints the seed, the reason and the story. */
HELPER void wrong(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
HELPER void wrong(const char *format, ...)
{
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    va_list arguments;
    pthread_mutex_lock(&once); /* never unlocked: one report, then the end */
    printf("FAILED: seed %llu: ", (unsigned long long)current_seed);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    if (describe != NULL)
        describe();
    if (story != NULL && story_length > 0)
        printf("what was done:\n%s", story);
    fflush(stdout);
    _exit(EXIT_FAILURE); /* no cleaning up behind what hangs */
}

#define OK(call)                                                                           \
    do {                                                                                   \
        const cl_int ok_status = (call);                                                   \
        if (ok_status != CL_SUCCESS)                                                       \
            wrong("line %d: %s -> %d", __LINE__, #call, (int)ok_status);                   \
    } while (0)

/* ---- the watchdog: a program that hangs is reported with its seed ---- */

static pthread_mutex_t watch_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t watch_fed = PTHREAD_COND_INITIALIZER;
static unsigned long watch_turn;
static long watch_seconds = 60;

HELPER void *watch(void *unused)
{
    pthread_mutex_lock(&watch_lock);
    for (;;) {
        const unsigned long turn = watch_turn;
        struct timespec end;
        clock_gettime(CLOCK_REALTIME, &end);
        end.tv_sec += watch_seconds;
        while (watch_turn == turn)
            if (pthread_cond_timedwait(&watch_fed, &watch_lock, &end) != 0 && watch_turn == turn)
                wrong("it hangs: no end after %ld s", watch_seconds);
    }
    return unused;
}

/* Starts the watchdog. A suite that breaks connections sets more seconds, because pauses are no fault then. */
HELPER void start_watchdog(void)
{
    pthread_t thread;
    const char *seconds = getenv("CONFORMANCE_WATCHDOG");
    if (seconds != NULL) {
        char *end;
        watch_seconds = strtol(seconds, &end, 10);
        if (*end != 0 || watch_seconds <= 0)
            wrong("invalid CONFORMANCE_WATCHDOG `%s`; expected seconds, e.g. 60", seconds);
    }
    if (pthread_create(&thread, NULL, watch, NULL) != 0)
        wrong("no thread for the watchdog");
    pthread_detach(thread);
}

/* Restarts the watchdog for a new program. */
HELPER void feed_watchdog(u64 seed)
{
    pthread_mutex_lock(&watch_lock);
    current_seed = seed;
    ++watch_turn;
    pthread_cond_signal(&watch_fed);
    pthread_mutex_unlock(&watch_lock);
    forget_story();
}

/* ---- devices ---- */

enum { MOST_DEVICES = 16 };
static cl_device_id devices[MOST_DEVICES];
static cl_uint device_count;

/* Opens the first `wanted` devices of the first platform that has so many. */
HELPER void open_devices(cl_uint wanted)
{
    cl_platform_id platforms[16];
    cl_uint count = 0, found = 0;
    OK(clGetPlatformIDs(16, platforms, &count));
    for (cl_uint i = 0; i < count && i < 16; ++i)
        if (clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, MOST_DEVICES, devices, &found) ==
                CL_SUCCESS &&
            found >= wanted) {
            device_count = wanted;
            return;
        }
    wrong("no platform has %u devices", (unsigned)wanted);
}

/* Returns the number after the option `--name`, or the default. */
HELPER u64 option(int argc, char **argv, const char *name, u64 otherwise)
{
    for (int i = 1; i + 1 < argc; ++i)
        if (strcmp(argv[i], name) == 0)
            return strtoull(argv[i + 1], NULL, 10);
    return otherwise;
}

#endif

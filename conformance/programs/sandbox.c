/*
 * Actions of a hostile kernel inside of its session's process on a node: native code that makes its own
 * system calls. Each row of the tables in sandbox_probes.h is a call and its expected result.
 *
 *     sandbox            all tables but the next one's
 *     sandbox ports      the table for a node whose connect_ports allow another port than this program's
 *     sandbox foreign    a call by the numbers of 32-bit programs, which must end the session
 *
 * The program prints a line for each probe that went wrong, and their count in the last line. Exit code 0:
 * all held; 1: one did not; 77: this machine cannot be tested, the last line says why.
 *
 * The victims are real: another session's process, the daemon, and files that this program makes. A call
 * may fail and still do harm. So the program checks the victims from outside after the probes.
 */
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 120

#include <CL/cl.h>
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FAILED = 1, SKIPPED = 77 };

#ifndef __x86_64__
int main(void)
{
    puts("the probes are written for x86-64");
    return SKIPPED;
}
#else

#include "sandbox_probes.h"

enum { TEXT_SIZE = 1 << 16, WORDS = 8, DESCRIPTORS = 256 };

/* A word with this bit is an offset into the text. A word with the other bit is the result of
   the last kept probe. */
#define PLACE (1L << 60)
#define OF_KEPT (1L << 61)

static const char *const SOURCE =
    "long call(long n, long a, long b, long c, long d, long e, long f) {\n"
    "    long r;\n"
    "    __asm__ volatile(\"mov %5, %%r10; mov %6, %%r8; mov %7, %%r9; syscall\" : \"=a\"(r)\n"
    "        : \"a\"(n), \"D\"(a), \"S\"(b), \"d\"(c), \"r\"(d), \"r\"(e), \"r\"(f)\n"
    "        : \"rcx\", \"r8\", \"r9\", \"r10\", \"r11\", \"memory\");\n"
    "    return r;\n"
    "}\n"
    "long word(long w, long kept, global char *text) {\n"
    "    if (w >= 0 && (w & (1L << 60))) return (long)text + (w & 0xffff);\n"
    "    if (w >= 0 && (w & (1L << 61))) return kept;\n"
    "    return w;\n"
    "}\n"
    "kernel void probe(global long *w, global char *text, int count, int relocations) {\n"
    "    long kept = -1;\n"
    "    for (int i = 0; i < relocations; i++) {\n"
    "        global long *x = (global long *)(text + w[8 * count + 2 * i]);\n"
    "        *x = (long)text + w[8 * count + 2 * i + 1];\n"
    "    }\n"
    "    for (int i = 0; i < count; i++) {\n"
    "        global long *x = w + 8 * i;\n"
    "        x[7] = call(x[0] & 0xffffffff, word(x[1], kept, text), word(x[2], kept, text), word(x[3], kept, text),\n"
    "            word(x[4], kept, text), word(x[5], kept, text), word(x[6], kept, text));\n"
    "        if (x[0] >> 32) kept = x[7];\n"
    "    }\n"
    "}\n"
    "kernel void foreign(global long *w) {\n"
    "    int r;\n"
    "    __asm__ volatile(\"int $0x80\" : \"=a\"(r) : \"a\"(20) : \"r8\", \"r9\", \"r10\", \"r11\", \"memory\");\n"
    "    w[0] = r;\n"
    "}\n";

static cl_context context;
static cl_command_queue queue;
static cl_program program;

static void die(const char *what, long code)
{
    printf("%s: %ld\n", what, code);
    exit(FAILED);
}

static void check(const char *what, cl_int status)
{
    if (status != CL_SUCCESS)
        die(what, status);
}

static void open_session(void)
{
    cl_platform_id platform;
    cl_device_id device;
    cl_int status;
    check("clGetPlatformIDs", clGetPlatformIDs(1, &platform, NULL));
    if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_CPU, 1, &device, NULL) != CL_SUCCESS) {
        puts("the node's first platform has no CPU device");
        exit(SKIPPED);
    }
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
    check("clCreateContext", status);
    queue = clCreateCommandQueue(context, device, 0, &status);
    check("clCreateCommandQueue", status);
    const char *source = SOURCE;
    program = clCreateProgramWithSource(context, 1, &source, NULL, &status);
    check("clCreateProgramWithSource", status);
    status = clBuildProgram(program, 1, &device, "", NULL, NULL);
    if (status != CL_SUCCESS) {
        static char log[4096];
        clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL);
        puts(log);
    }
    check("clBuildProgram", status);
}

static cl_mem buffer_of(void *bytes, size_t size)
{
    cl_int status;
    cl_mem made = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, size, bytes, &status);
    check("clCreateBuffer", status);
    return made;
}

/* ---- one launch of many calls ---- */

struct launch {
    long words[(MOST_PROBES + MOST_RELOCATIONS) * WORDS];
    char text[TEXT_SIZE];
    size_t used;
    int count, relocations;
    long relocation[MOST_RELOCATIONS][2];
};

static long put(struct launch *l, const void *bytes, size_t size)
{
    size_t at = (l->used + 15) & ~(size_t)15;
    if (at + size > TEXT_SIZE)
        die("too much text", (long)at);
    memcpy(l->text + at, bytes, size);
    l->used = at + size;
    return (long)at;
}

static void point(struct launch *l, long at, long to)
{
    if (l->relocations == MOST_RELOCATIONS)
        die("too many pointers", to);
    l->relocation[l->relocations][0] = at;
    l->relocation[l->relocations++][1] = to;
}

static void add(struct launch *l, long number, const long arguments[6])
{
    if (l->count == MOST_PROBES)
        die("too many probes", number);
    long *words = l->words + l->count++ * WORDS;
    words[0] = number;
    memcpy(words + 1, arguments, 6 * sizeof *arguments);
    words[7] = -9999;
}

static long result(const struct launch *l, int i) { return l->words[i * WORDS + 7]; }

static void run(struct launch *l)
{
    cl_int status;
    size_t one = 1, size = (size_t)(l->count * WORDS + l->relocations * 2) * sizeof(long);
    memcpy(l->words + l->count * WORDS, l->relocation, (size_t)l->relocations * 2 * sizeof(long));
    cl_mem words = buffer_of(l->words, size), text = buffer_of(l->text, TEXT_SIZE);
    cl_kernel kernel = clCreateKernel(program, "probe", &status);
    check("clCreateKernel", status);
    check("clSetKernelArg", clSetKernelArg(kernel, 0, sizeof words, &words));
    check("clSetKernelArg", clSetKernelArg(kernel, 1, sizeof text, &text));
    check("clSetKernelArg", clSetKernelArg(kernel, 2, sizeof l->count, &l->count));
    check("clSetKernelArg", clSetKernelArg(kernel, 3, sizeof l->relocations, &l->relocations));
    check("clEnqueueNDRangeKernel",
          clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
    check("clEnqueueReadBuffer", clEnqueueReadBuffer(queue, words, CL_TRUE, 0, size, l->words, 0, NULL, NULL));
    clReleaseKernel(kernel);
    clReleaseMemObject(words);
    clReleaseMemObject(text);
}

static struct launch launch;

static long ask(long number)
{
    memset(&launch, 0, sizeof launch);
    add(&launch, number, (const long[6]){0});
    run(&launch);
    return result(&launch, 0);
}

/* ---- the victims ---- */

static long own, other, node;
static char folder[64];

/* Starts another session in another process, and returns its worker's number. The session lasts
   until this program ends. */
static long other_session(void)
{
    int pipes[2];
    if (pipe(pipes) != 0)
        die("pipe", errno);
    pid_t child = fork();
    if (child == 0) {
        open_session();
        long worker = ask(SYS_getpid);
        if (write(pipes[1], &worker, sizeof worker) != sizeof worker)
            _exit(FAILED);
        for (;;)
            pause();
    }
    close(pipes[1]);
    long worker = 0;
    if (read(pipes[0], &worker, sizeof worker) != sizeof worker) {
        int status = 0;
        waitpid(child, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
            exit(SKIPPED);
        die("no other session", status);
    }
    own = child; /* until this session has a worker */
    return worker;
}

static void make(const char *name, mode_t mode)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL, mode);
    if (file < 0 || write(file, "secret", 6) != 6 || fchmod(file, mode) != 0)
        die(path, errno);
    close(file);
}

/* Makes a folder where every user may do everything. Only the sandbox keeps a session's process out. */
static void make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/causeway-sandbox-XXXXXX");
    if (mkdtemp(folder) == NULL || chmod(folder, 0777) != 0)
        die("mkdtemp", errno);
    make("key", 0666);
    make("program", 0777);
    char path[128];
    snprintf(path, sizeof path, "%s/inner", folder);
    if (mkdir(path, 0777) != 0 || chmod(path, 0777) != 0)
        die("mkdir", errno);
}

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command) != 0)
        puts("the folder stays");
}

/* Describes as text everything of a process that the probes may change. */
static void look_at_process(long pid, char *text, size_t size)
{
    struct rlimit processor = {0}, files = {0};
    cpu_set_t set;
    CPU_ZERO(&set);
    prlimit((pid_t)pid, RLIMIT_CPU, NULL, &processor);
    prlimit((pid_t)pid, RLIMIT_NOFILE, NULL, &files);
    sched_getaffinity((pid_t)pid, sizeof set, &set);
    snprintf(text, size, "alive %d, limits %lld %lld, processors %d, priority %d, scheduler %d, io %ld",
             kill((pid_t)pid, 0), (long long)processor.rlim_cur, (long long)files.rlim_cur, CPU_COUNT(&set),
             getpriority(PRIO_PROCESS, (id_t)pid), sched_getscheduler((pid_t)pid),
             syscall(SYS_ioprio_get, 1, pid));
}

static void look_at_file(const char *name, char *text, size_t size)
{
    char path[128], bytes[16] = "";
    struct stat found = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int status = stat(path, &found), file = open(path, O_RDONLY);
    ssize_t read_bytes = read(file, bytes, sizeof bytes - 1);
    close(file);
    snprintf(text, size, "%s: %d, mode %o, owner %u, links %lu, changed %lld.%09ld, \"%s\" %zd", name, status,
             (unsigned)found.st_mode, (unsigned)found.st_uid, (unsigned long)found.st_nlink,
             (long long)found.st_ctim.tv_sec, found.st_ctim.tv_nsec, bytes, read_bytes);
}

enum { VICTIMS = 4, LINE = 256 };

static void look(char lines[VICTIMS][LINE])
{
    look_at_process(other, lines[0], LINE);
    look_at_process(node, lines[1], LINE);
    look_at_file("key", lines[2], LINE);
    look_at_file("program", lines[3], LINE);
}

/* ---- the tables ---- */

/* Replaces $DIR, $OTHER, $NODE and $OWN in a probe's text. */
static void expand(const char *text, char *into, size_t size)
{
    size_t used = 0;
    for (; *text != 0 && used + 1 < size; text++) {
        const struct { const char *name; long number; } names[] = {{"$OTHER", other}, {"$NODE", node}, {"$OWN", own}};
        size_t i, length = 0;
        if (strncmp(text, "$DIR", 4) == 0) {
            length = 4;
            used += (size_t)snprintf(into + used, size - used, "%s", folder);
        }
        for (i = 0; length == 0 && i < 3; i++) {
            if (strncmp(text, names[i].name, strlen(names[i].name)) == 0) {
                length = strlen(names[i].name);
                used += (size_t)snprintf(into + used, size - used, "%ld", names[i].number);
            }
        }
        if (length != 0)
            text += length - 1;
        else
            into[used++] = *text;
    }
    into[used] = 0;
}

/* The structures that calls point to, made once per launch. */
struct places {
    long data, mask, address, message, attributes;
};

static struct places put_structures(struct launch *l, int port)
{
    char nothing[512] = {0};
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(0, &mask);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct mmsghdr message = {.msg_hdr = {.msg_namelen = sizeof address, .msg_iovlen = 1}};
    struct iovec vector = {.iov_len = 1};
    uint32_t attributes[12] = {sizeof attributes}; /* struct sched_attr: SCHED_OTHER */
    struct places p;
    p.data = put(l, nothing, sizeof nothing);
    p.mask = put(l, &mask, sizeof mask);
    p.address = put(l, &address, sizeof address);
    p.attributes = put(l, attributes, sizeof attributes);
    long iov = put(l, &vector, sizeof vector);
    p.message = put(l, &message, sizeof message);
    point(l, iov + (long)offsetof(struct iovec, iov_base), p.data);
    point(l, p.message + (long)offsetof(struct mmsghdr, msg_hdr.msg_name), p.address);
    point(l, p.message + (long)offsetof(struct mmsghdr, msg_hdr.msg_iov), iov);
    return p;
}

static long argument(struct launch *l, const struct places *p, long a, const char *text)
{
    char expanded[256];
    switch (a) {
    case OWN: return own;
    case OTHER: return other;
    case NODE: return node;
    case KEPT: return OF_KEPT;
    case DATA: return PLACE | p->data;
    case MASK: return PLACE | p->mask;
    case ADDRESS: return PLACE | p->address;
    case MESSAGE: return PLACE | p->message;
    case ATTRIBUTES: return PLACE | p->attributes;
    case TEXT:
    case TEXT2:
        expand(text, expanded, sizeof expanded - 1);
        if (a == TEXT2)
            strcat(expanded, "2");
        return PLACE | put(l, expanded, strlen(expanded) + 1);
    default: return a;
    }
}

/* Files of the system that this machine lacks are not judged. */
static int is_here(const struct probe *p)
{
    char path[256];
    if (p->text == NULL || p->text[0] != '/')
        return 1;
    expand(p->text, path, sizeof path);
    struct stat found;
    return lstat(path, &found) == 0;
}

static int is_right(long expected, long got)
{
    return expected == WORKS ? got >= 0 : got == expected;
}

static int held, wrong;

static void try_table(const struct table *table, int port)
{
    int asked[MOST_PROBES], count = 0;
    memset(&launch, 0, sizeof launch);
    struct places places = put_structures(&launch, port);
    for (int i = 0; i < table->count; i++) {
        const struct probe *p = table->probes + i;
        if (!is_here(p))
            continue;
        long arguments[6];
        for (int a = 0; a < 6; a++)
            arguments[a] = argument(&launch, &places, p->arguments[a], p->text);
        add(&launch, p->number | (p->keeps ? 1L << 32 : 0), arguments);
        asked[count++] = i;
    }
    run(&launch);
    for (int i = 0; i < count; i++) {
        const struct probe *p = table->probes + asked[i];
        long got = result(&launch, i);
        if (is_right(p->expected, got)) {
            held++;
            continue;
        }
        wrong++;
        printf("%s: %s%s%s: %ld, not %ld\n", table->name, p->name, p->text ? " " : "", p->text ? p->text : "", got,
               p->expected == WORKS ? 0 : p->expected);
    }
}

/* Checks the sockets that the process already holds. No such socket may listen, or be made to listen. */
static void try_held_sockets(void)
{
    enum { TYPE_OF, ACCEPTS, LISTEN, EACH };
    memset(&launch, 0, sizeof launch);
    int yes = 0;
    socklen_t size = sizeof yes;
    long at = put(&launch, &yes, sizeof yes), length = put(&launch, &size, sizeof size);
    for (long fd = 0; fd < DESCRIPTORS / EACH; fd++) {
        add(&launch, SYS_getsockopt, (const long[6]){fd, SOL_SOCKET, SO_TYPE, PLACE | at, PLACE | length});
        add(&launch, SYS_accept4, (const long[6]){fd, 0, 0, SOCK_NONBLOCK});
        add(&launch, SYS_listen, (const long[6]){fd, 1});
    }
    run(&launch);
    for (int fd = 0; fd < DESCRIPTORS / EACH; fd++) {
        long accepted = result(&launch, fd * EACH + ACCEPTS), listens = result(&launch, fd * EACH + LISTEN);
        if (result(&launch, fd * EACH + TYPE_OF) < 0)
            continue;
        /* -EAGAIN: the socket listens, and no client has come. */
        if (accepted < 0 && accepted != -EAGAIN && listens == -EPERM) {
            held++;
            continue;
        }
        wrong++;
        printf("held sockets: %d: accept gives %ld, listen %ld\n", fd, accepted, listens);
    }
}

static int a_listener(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int socket_of = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(socket_of, (struct sockaddr *)&address, size) != 0 || listen(socket_of, 8) != 0 ||
        getsockname(socket_of, (struct sockaddr *)&address, &size) != 0)
        die("no listener", errno);
    return ntohs(address.sin_port);
}

static int call_of_32_bit(void)
{
    long word = 0;
    size_t one = 1;
    cl_int status;
    open_session();
    cl_mem words = buffer_of(&word, sizeof word);
    cl_kernel kernel = clCreateKernel(program, "foreign", &status);
    check("clCreateKernel", status);
    check("clSetKernelArg", clSetKernelArg(kernel, 0, sizeof words, &words));
    clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL);
    status = clEnqueueReadBuffer(queue, words, CL_TRUE, 0, sizeof word, &word, 0, NULL, NULL);
    if (status == CL_SUCCESS) {
        printf("a call of 32 bit was answered: %ld\n", word);
        return FAILED;
    }
    puts("the session ended");
    return 0;
}

static void try_all(int ports)
{
    int port = a_listener();
    if (ports) {
        try_table(&PORTS, port);
        return;
    }
    for (int i = 0; i < TABLES; i++)
        try_table(&ALL[i], port);
    try_held_sockets();
}

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "";
    long version = syscall(444, NULL, 0L, 1L); /* landlock_create_ruleset, for its version */
    if (version < 6) {
        printf("this kernel's Landlock has version %ld, not 6\n", version);
        return SKIPPED;
    }
    if (strcmp(what, "foreign") == 0)
        return call_of_32_bit();
    /* Fork before this process has threads, because fork does not copy threads. */
    other = other_session();
    pid_t child = (pid_t)own;
    open_session();
    own = ask(SYS_getpid);
    node = ask(SYS_getppid);
    make_folder();
    char before[VICTIMS][LINE], after[VICTIMS][LINE];
    look(before);
    try_all(strcmp(what, "ports") == 0);
    look(after);
    for (int i = 0; i < VICTIMS; i++) {
        if (strcmp(before[i], after[i]) == 0) {
            held++;
            continue;
        }
        wrong++;
        printf("changed:\n  %s\n  %s\n", before[i], after[i]);
    }
    remove_folder();
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    printf("%d probes held, %d did not\n", held, wrong);
    return wrong == 0 ? 0 : FAILED;
}
#endif

/*
 * The tables of sandbox.c: system calls from inside of a session's process, with their expected results.
 *
 * A row is {name, call, {arguments}, text, expected}. The kernel returns the results: -EACCES
 * comes from Landlock, -EPERM and -ENOSYS come from the filter. The program replaces arguments
 * in capitals when it tries the table.
 */
#ifndef SANDBOX_PROBES_H
#define SANDBOX_PROBES_H

enum { MOST_PROBES = 256, MOST_RELOCATIONS = 16 };

/* Arguments that are known only later. No call takes such numbers. */
enum {
    OWN = 0x5AD0001, /* this session's process */
    OTHER,           /* another session's process */
    NODE,            /* the daemon */
    KEPT,            /* the result of the last probe that keeps its own */
    DATA,            /* 512 bytes of zeros */
    MASK,            /* the set of processor 0; also a 1 */
    ADDRESS,         /* where this program listens: a struct sockaddr_in */
    MESSAGE,         /* a byte to there: a struct mmsghdr, which begins with a struct msghdr */
    ATTRIBUTES,      /* a struct sched_attr */
    TEXT,            /* the row's text, with $DIR (a folder that everybody may write), $OWN, $OTHER and $NODE in it */
    TEXT2,           /* the same with a 2 behind it */
};

/* The expected result of a call that must work: anything but an error. */
#define WORKS 0x5AD1000L

struct probe {
    const char *name;
    long number;
    long arguments[6];
    const char *text;
    long expected;
    int keeps;
};

struct table {
    const char *name;
    const struct probe *probes;
    int count;
};

#define TABLE(name, probes) {name, probes, (int)(sizeof probes / sizeof *probes)}

enum {
    HERE = -100, READ = 0, WRITE = 1, CREATE = 0101, A_PATH = 010000000, TEMPORARY = 020200002,
    NOFILE = 7, CPU = 0, FASTOPEN = 0x20000000, MPTCP = 262,
};

#define OPENS(path, flags, expected) {"open", SYS_openat, {HERE, TEXT, flags, 0600}, path, expected, 0}
#define OPENS_KEPT(path, flags) {"open", SYS_openat, {HERE, TEXT, flags, 0600}, path, WORKS, 1}

/* ---- what every driver needs ---- */

static const struct probe USES[] = {
    OPENS("/usr/lib", READ, WORKS),
    OPENS("/etc/ld.so.cache", READ, WORKS),
    OPENS("/etc/OpenCL/vendors", READ, WORKS),
    OPENS("/proc/self/maps", READ, WORKS),
    OPENS("/proc/self/status", READ, WORKS),
    OPENS("/proc/cpuinfo", READ, WORKS),
    OPENS("/proc/meminfo", READ, WORKS),
    OPENS("/sys/devices/system/cpu/online", READ, WORKS),
    OPENS("/dev/null", 2, WORKS),
    OPENS("/dev/urandom", READ, WORKS),
    {"memfd_create", SYS_memfd_create, {TEXT, 0}, "memory", WORKS, 0},
    {"the scheduler of this thread", SYS_sched_setscheduler, {0, SCHED_OTHER, DATA}, NULL, WORKS, 0},
    {"the affinity of this thread", SYS_sched_setaffinity, {0, 128, MASK}, NULL, WORKS, 0},
    {"the affinity of the first thread", SYS_sched_setaffinity, {OWN, 128, MASK}, NULL, WORKS, 0},
    {"the affinity of another process, asked", SYS_sched_getaffinity, {OTHER, 128, DATA}, NULL, WORKS, 0},
    {"the priority of this thread", SYS_setpriority, {PRIO_PROCESS, 0, 5}, NULL, WORKS, 0},
    {"the order of its files' accesses", SYS_ioprio_set, {1, 0, 2 << 13 | 4}, NULL, WORKS, 0},
    {"its own limits", SYS_prlimit64, {0, NOFILE, 0, DATA}, NULL, WORKS, 0},
    {"its own limits by its number", SYS_prlimit64, {OWN, NOFILE, 0, DATA}, NULL, WORKS, 0},
    {"a signal to itself", SYS_kill, {OWN, 0}, NULL, WORKS, 0},
    {"personality, asked", SYS_personality, {0xffffffff}, NULL, WORKS, 0},
    {"a Unix socket", SYS_socket, {AF_UNIX, SOCK_STREAM, 0}, NULL, WORKS, 0},
    {"a netlink socket for devices", SYS_socket, {AF_NETLINK, SOCK_RAW, 15}, NULL, WORKS, 0},
    {"a TCP socket", SYS_socket, {AF_INET, SOCK_STREAM, 0}, NULL, WORKS, 1},
    {"connect", SYS_connect, {KEPT, ADDRESS, 16}, NULL, WORKS, 0},
    {"send", SYS_sendto, {KEPT, DATA, 1, MSG_NOSIGNAL}, NULL, WORKS, 0},
    {"ioctl FIONREAD", SYS_ioctl, {KEPT, 0x541b, DATA}, NULL, WORKS, 0},
};

/* ---- files ---- */

static const struct probe FILES[] = {
    OPENS("/", READ, -EACCES),
    OPENS("/etc", READ, -EACCES),
    OPENS("/etc/passwd", READ, -EACCES),
    OPENS("/etc/group", READ, -EACCES),
    OPENS("/etc/shadow", READ, -EACCES),
    OPENS("/etc/hostname", READ, -EACCES),
    OPENS("/etc/machine-id", READ, -EACCES),
    OPENS("/etc/fstab", READ, -EACCES),
    OPENS("/etc/nvidia", READ, -EACCES),
    OPENS("/etc/nvidia/gridd.conf", READ, -EACCES),
    OPENS("/etc/nvidia/ClientConfigToken", READ, -EACCES),
    OPENS("/etc/ssl", READ, -EACCES),
    OPENS("/etc/ssh", READ, -EACCES),
    OPENS("/home", READ, -EACCES),
    OPENS("/root", READ, -EACCES),
    OPENS("/tmp", READ, -EACCES),
    OPENS("/var/tmp", READ, -EACCES),
    OPENS("/var/log", READ, -EACCES),
    OPENS("/var/lib", READ, -EACCES),
    OPENS("/run", READ, -EACCES),
    OPENS("/boot", READ, -EACCES),
    OPENS("/srv", READ, -EACCES),
    OPENS("/opt", READ, -EACCES),
    OPENS("/usr/include", READ, -EACCES),
    OPENS("/usr/include/stdio.h", READ, -EACCES),
    OPENS("/usr/share/doc", READ, -EACCES),
    OPENS("/usr/src", READ, -EACCES),
    OPENS("/usr/lib/causeway-sandbox", CREATE, -EACCES),
    OPENS("/dev", READ, -EACCES),
    OPENS("/dev/mem", READ, -EACCES),
    OPENS("/dev/kmsg", READ, -EACCES),
    OPENS("/dev/tty", READ, -EACCES),
    OPENS("/dev/ptmx", READ, -EACCES),
    OPENS("/dev/fuse", READ, -EACCES),
    OPENS("/dev/shm", READ, -EACCES),
    OPENS("/dev/shm", TEMPORARY, -EACCES),
    OPENS("/dev/mqueue", READ, -EACCES),
    OPENS("/sys", READ, -EACCES),
    OPENS("/sys/class/net", READ, -EACCES),
    OPENS("/sys/class/dmi/id/product_name", READ, -EACCES),
    OPENS("/sys/kernel/security", READ, -EACCES),
    OPENS("/sys/devices/system/cpu/online", WRITE, -EACCES),
    OPENS("$DIR", READ, -EACCES),
    OPENS("$DIR", TEMPORARY, -EACCES),
    OPENS("$DIR/key", READ, -EACCES),
    OPENS("$DIR/key", WRITE, -EACCES),
    OPENS("$DIR/new", CREATE, -EACCES),
    {"a program with its owner's rights", SYS_openat, {HERE, TEXT, CREATE, 04755}, "$DIR/new", -EPERM, 0},
    {"a program with its group's rights", SYS_openat, {HERE, TEXT, CREATE, 02755}, "$DIR/new", -EPERM, 0},
    {"a program with rights, without a name", SYS_openat, {HERE, TEXT, TEMPORARY, 04755}, "$DIR", -EPERM, 0},
    {"open", SYS_open, {TEXT, CREATE, 04755}, "$DIR/new", -EPERM, 0},
    {"creat", SYS_creat, {TEXT, 04755}, "$DIR/new", -EPERM, 0},
    {"mknod of a file", SYS_mknod, {TEXT, S_IFREG | 04755, 0}, "$DIR/new", -EPERM, 0},
    {"mknodat of a file", SYS_mknodat, {HERE, TEXT, S_IFREG | 04755, 0}, "$DIR/new", -EPERM, 0},
    {"openat2", 437, {HERE, TEXT, DATA, 24}, "$DIR/key", -ENOSYS, 0},
    {"truncate", SYS_truncate, {TEXT, 0}, "$DIR/key", -EACCES, 0},
    {"unlink", SYS_unlink, {TEXT}, "$DIR/key", -EACCES, 0},
    {"rename", SYS_rename, {TEXT, TEXT2}, "$DIR/key", -EACCES, 0},
    {"link", SYS_link, {TEXT, TEXT2}, "$DIR/key", -EACCES, 0},
    {"symlink", SYS_symlink, {TEXT, TEXT2}, "$DIR/key", -EACCES, 0},
    {"mkdir", SYS_mkdir, {TEXT, 0777}, "$DIR/new", -EACCES, 0},
    {"rmdir", SYS_rmdir, {TEXT}, "$DIR/inner", -EACCES, 0},
    {"mknod of a pipe", SYS_mknod, {TEXT, S_IFIFO | 0666, 0}, "$DIR/new", -EACCES, 0},
    {"mknod of a socket", SYS_mknod, {TEXT, S_IFSOCK | 0666, 0}, "$DIR/new", -EACCES, 0},
    {"execve", SYS_execve, {TEXT, DATA, DATA}, "$DIR/program", -EACCES, 0},
    {"open as a path", SYS_openat, {HERE, TEXT, A_PATH}, "$DIR/program", WORKS, 1},
    {"execveat of a path's descriptor", SYS_execveat, {KEPT, DATA, DATA, DATA, 0x1000}, NULL, -EACCES, 0},
};

/* Changes of files' attributes, which Landlock does not judge. */
static const struct probe ATTRIBUTES_OF_FILES[] = {
    {"open as a path", SYS_openat, {HERE, TEXT, A_PATH}, "$DIR/program", WORKS, 1},
    {"chmod", SYS_chmod, {TEXT, 04755}, "$DIR/program", -EPERM, 0},
    {"fchmod", SYS_fchmod, {KEPT, 04755}, NULL, -EPERM, 0},
    {"fchmodat", SYS_fchmodat, {HERE, TEXT, 04755}, "$DIR/program", -EPERM, 0},
    {"fchmodat2 of a path's descriptor", 452, {KEPT, DATA, 04755, 0x1000}, NULL, -EPERM, 0},
    {"chown", SYS_chown, {TEXT, -1, -1}, "$DIR/key", -EPERM, 0},
    {"lchown", SYS_lchown, {TEXT, -1, -1}, "$DIR/key", -EPERM, 0},
    {"fchown", SYS_fchown, {0, -1, -1}, NULL, -EPERM, 0},
    {"fchownat of a path's descriptor", SYS_fchownat, {KEPT, DATA, -1, -1, 0x1000}, NULL, -EPERM, 0},
    {"setxattr", SYS_setxattr, {TEXT, DATA, DATA, 0, 0}, "$DIR/key", -EPERM, 0},
    {"lsetxattr", SYS_lsetxattr, {TEXT, DATA, DATA, 0, 0}, "$DIR/key", -EPERM, 0},
    {"fsetxattr", SYS_fsetxattr, {0, DATA, DATA, 0, 0}, NULL, -EPERM, 0},
    {"setxattrat", 463, {HERE, TEXT, 0, DATA, DATA, 16}, "$DIR/key", -ENOSYS, 0},
    {"removexattr", SYS_removexattr, {TEXT, DATA}, "$DIR/key", -EPERM, 0},
    {"lremovexattr", SYS_lremovexattr, {TEXT, DATA}, "$DIR/key", -EPERM, 0},
    {"fremovexattr", SYS_fremovexattr, {0, DATA}, NULL, -EPERM, 0},
    {"removexattrat", 466, {HERE, TEXT, 0, DATA}, "$DIR/key", -ENOSYS, 0},
    {"utime", SYS_utime, {TEXT, 0}, "$DIR/key", -EPERM, 0},
    {"utimes", SYS_utimes, {TEXT, 0}, "$DIR/key", -EPERM, 0},
    {"futimesat", SYS_futimesat, {HERE, TEXT, 0}, "$DIR/key", -EPERM, 0},
    {"utimensat", SYS_utimensat, {HERE, TEXT, 0, 0}, "$DIR/key", -EPERM, 0},
    {"futimens", SYS_utimensat, {0, 0, 0, 0}, NULL, -EPERM, 0},
    {"file_setattr", 469, {HERE, TEXT, DATA, 24, 0}, "$DIR/key", -ENOSYS, 0},
    {"ioctl FS_IOC_SETFLAGS", SYS_ioctl, {0, 0x40086602, DATA}, NULL, -EPERM, 0},
    {"ioctl FS_IOC_FSSETXATTR", SYS_ioctl, {0, 0x401c5820, DATA}, NULL, -EPERM, 0},
    {"ioctl FS_IOC_SETVERSION", SYS_ioctl, {0, 0x40087602, DATA}, NULL, -EPERM, 0},
    {"ioctl EXT4_IOC_SETVERSION", SYS_ioctl, {0, 0x40086604, DATA}, NULL, -EPERM, 0},
    {"ioctl FS_IOC_ENABLE_VERITY", SYS_ioctl, {0, 0x40806685, DATA}, NULL, -EPERM, 0},
    {"ioctl FS_IOC_SET_ENCRYPTION_POLICY", SYS_ioctl, {0, 0x800c6613, DATA}, NULL, -EPERM, 0},
    {"fcntl F_SETLEASE", SYS_fcntl, {0, F_SETLEASE, F_RDLCK}, NULL, -EPERM, 0},
    OPENS_KEPT("/usr/lib", READ),
    {"fcntl F_NOTIFY", SYS_fcntl, {KEPT, 1026, 0x3f}, NULL, -EPERM, 0},
    {"inotify_init1", SYS_inotify_init1, {0}, NULL, WORKS, 1},
    {"inotify_add_watch", SYS_inotify_add_watch, {KEPT, TEXT, 0xfff}, "$DIR/key", -EPERM, 0},
    {"fanotify_init", SYS_fanotify_init, {0, 0}, NULL, -EPERM, 0},
    {"open_by_handle_at", SYS_open_by_handle_at, {HERE, DATA, 0}, NULL, -EPERM, 0},
    {"quotactl", SYS_quotactl, {0, 0, 0, 0}, NULL, -EPERM, 0},
    {"quotactl_fd", 443, {0, 0, 0, 0}, NULL, -EPERM, 0},
};

/* ---- processes ---- */

#define OF_FILES(process) \
    OPENS("/proc/" process "/environ", READ, -EACCES), \
    OPENS("/proc/" process "/mem", 2, -EACCES), \
    OPENS("/proc/" process "/maps", READ, -EACCES), \
    OPENS("/proc/" process "/cmdline", READ, -EACCES), \
    OPENS("/proc/" process "/fd", READ, -EACCES), \
    OPENS("/proc/" process "/oom_score_adj", WRITE, -EACCES)

#define OF_PROCESS(process) \
    {"prlimit64 of files " #process, SYS_prlimit64, {process, NOFILE, DATA, 0}, NULL, -EPERM, 0}, \
    {"prlimit64 of processor time " #process, SYS_prlimit64, {process, CPU, 0, DATA}, NULL, -EPERM, 0}, \
    {"sched_setaffinity " #process, SYS_sched_setaffinity, {process, 128, MASK}, NULL, -EPERM, 0}, \
    {"sched_setscheduler " #process, SYS_sched_setscheduler, {process, 5, DATA}, NULL, -EPERM, 0}, \
    {"sched_setparam " #process, SYS_sched_setparam, {process, DATA}, NULL, -EPERM, 0}, \
    {"sched_setattr " #process, SYS_sched_setattr, {process, ATTRIBUTES, 0}, NULL, -EPERM, 0}, \
    {"setpriority " #process, SYS_setpriority, {PRIO_PROCESS, process, 19}, NULL, -EPERM, 0}, \
    {"ioprio_set " #process, SYS_ioprio_set, {1, process, 3 << 13}, NULL, -EPERM, 0}, \
    {"kill " #process, SYS_kill, {process, SIGCONT}, NULL, -EPERM, 0}, \
    {"tkill " #process, SYS_tkill, {process, SIGCONT}, NULL, -EPERM, 0}, \
    {"tgkill " #process, SYS_tgkill, {process, process, SIGCONT}, NULL, -EPERM, 0}, \
    {"rt_sigqueueinfo " #process, SYS_rt_sigqueueinfo, {process, SIGCONT, DATA}, NULL, -EPERM, 0}, \
    {"rt_tgsigqueueinfo " #process, SYS_rt_tgsigqueueinfo, {process, process, SIGCONT, DATA}, NULL, -EPERM, 0}, \
    {"pidfd_open " #process, 434, {process, 0}, NULL, -EPERM, 0}, \
    {"ptrace " #process, SYS_ptrace, {16, process, 0, 0}, NULL, -EPERM, 0}, \
    {"process_vm_readv " #process, SYS_process_vm_readv, {process, DATA, 1, DATA, 1, 0}, NULL, -EPERM, 0}, \
    {"process_vm_writev " #process, SYS_process_vm_writev, {process, DATA, 1, DATA, 1, 0}, NULL, -EPERM, 0}, \
    {"kcmp " #process, SYS_kcmp, {process, OWN, 0, 0, 0}, NULL, -EPERM, 0}, \
    {"migrate_pages " #process, SYS_migrate_pages, {process, 8, DATA, DATA}, NULL, -EPERM, 0}, \
    {"move_pages " #process, SYS_move_pages, {process, 1, DATA, 0, DATA, 0}, NULL, -EPERM, 0}, \
    {"get_robust_list " #process, SYS_get_robust_list, {process, DATA, DATA}, NULL, -EPERM, 0}, \
    {"prctl PR_SCHED_CORE " #process, SYS_prctl, {62, 2, process, 0, 0}, NULL, -EPERM, 0}, \
    {"fcntl F_SETOWN " #process, SYS_fcntl, {0, F_SETOWN, process}, NULL, -EPERM, 0}, \
    {"ioctl FIOSETOWN " #process, SYS_ioctl, {0, 0x8901, MASK}, NULL, -EPERM, 0}

static const struct probe PROCESSES[] = {
    OF_FILES("$OTHER"),
    OF_FILES("$NODE"),
    OPENS("/proc", READ, -EACCES),
    OPENS("/proc/1/cmdline", READ, -EACCES),
    OPENS("/proc/self/environ", READ, -EACCES),
    OPENS("/proc/self/task", READ, -EACCES),
    OPENS("/proc/$OWN/task/$OWN/environ", READ, -EACCES),
    OPENS("/proc/thread-self/environ", READ, -EACCES),
    OPENS("/proc/self/mem", 2, -EACCES),
    OPENS("/proc/self/oom_score_adj", WRITE, -EACCES),
    OPENS("/proc/mounts", READ, -EACCES),
    OPENS("/proc/version", READ, -EACCES),
    OPENS("/proc/cmdline", READ, -EACCES),
    OPENS("/proc/kallsyms", READ, -EACCES),
    OPENS("/proc/net/tcp", READ, -EACCES),
    OPENS("/proc/net/unix", READ, -EACCES),
    OPENS("/proc/sysvipc/shm", READ, -EACCES),
    OPENS("/proc/sys/kernel/hostname", READ, -EACCES),
    OF_PROCESS(OTHER),
    OF_PROCESS(NODE),
    {"kill of all", SYS_kill, {-1, 0}, NULL, -EPERM, 0},
    {"setpriority of the group", SYS_setpriority, {PRIO_PGRP, 0, 19}, NULL, -EPERM, 0},
    {"setpriority of the user", SYS_setpriority, {PRIO_USER, 0, 19}, NULL, -EPERM, 0},
    {"ioprio_set of the group", SYS_ioprio_set, {2, 0, 3 << 13}, NULL, -EPERM, 0},
    {"ioprio_set of the user", SYS_ioprio_set, {3, 0, 3 << 13}, NULL, -EPERM, 0},
    {"fcntl F_SETOWN_EX", SYS_fcntl, {0, 15, DATA}, NULL, -EPERM, 0},
    {"fcntl F_SETSIG", SYS_fcntl, {0, 10, SIGKILL}, NULL, -EPERM, 0},
    {"pidfd_send_signal", 424, {0, 0, 0, 0}, NULL, -EPERM, 0},
    {"pidfd_getfd", 438, {0, 0, 0}, NULL, -EPERM, 0},
    {"process_madvise", 440, {0, DATA, 1, 4, 0}, NULL, -EPERM, 0},
    {"process_mrelease", 448, {0, 0}, NULL, -EPERM, 0},
    {"setns", SYS_setns, {0, 0}, NULL, -EPERM, 0},
    {"unshare of the user", SYS_unshare, {0x10000000}, NULL, -EPERM, 0},
    {"unshare of mounts", SYS_unshare, {0x20000}, NULL, -EPERM, 0},
    {"clone into a user's namespace", SYS_clone, {0x10000000 | SIGCHLD, 0, 0}, NULL, -EPERM, 0},
    {"clone of a child of the daemon", SYS_clone, {0x8000, 0, 0}, NULL, -EPERM, 0},
    {"clone3", 435, {DATA, 88}, NULL, -ENOSYS, 0},
    {"setsid", SYS_setsid, {0}, NULL, -EPERM, 0},
    {"setpgid", SYS_setpgid, {0, 0}, NULL, -EPERM, 0},
    {"prctl PR_SET_PDEATHSIG", SYS_prctl, {1, 0}, NULL, -EPERM, 0},
};

/* ---- the kernel and the machine ---- */

static const struct probe CALLS[] = {
    {"bpf", SYS_bpf, {0, DATA, 8}, NULL, -EPERM, 0},
    {"perf_event_open", SYS_perf_event_open, {DATA, 0, -1, -1, 0}, NULL, -EPERM, 0},
    {"userfaultfd", SYS_userfaultfd, {1}, NULL, -EPERM, 0},
    {"io_uring_setup", 425, {1, DATA}, NULL, -EPERM, 0},
    {"keyctl", SYS_keyctl, {0, -3, 1}, NULL, -EPERM, 0},
    {"add_key", SYS_add_key, {DATA, DATA, DATA, 1, -3}, NULL, -EPERM, 0},
    {"request_key", SYS_request_key, {DATA, DATA, 0, -3}, NULL, -EPERM, 0},
    {"init_module", SYS_init_module, {DATA, 1, DATA}, NULL, -EPERM, 0},
    {"finit_module", SYS_finit_module, {0, DATA, 0}, NULL, -EPERM, 0},
    {"kexec_load", SYS_kexec_load, {0, 0, 0, 0}, NULL, -EPERM, 0},
    {"reboot", SYS_reboot, {0, 0, 0, 0}, NULL, -EPERM, 0},
    {"swapon", SYS_swapon, {DATA, 0}, NULL, -EPERM, 0},
    {"syslog", SYS_syslog, {10, 0, 0}, NULL, -EPERM, 0},
    {"clock_settime", SYS_clock_settime, {0, DATA}, NULL, -EPERM, 0},
    {"adjtimex", SYS_adjtimex, {DATA}, NULL, -EPERM, 0},
    {"sethostname", SYS_sethostname, {DATA, 1}, NULL, -EPERM, 0},
    {"mount", SYS_mount, {DATA, DATA, DATA, 0, 0}, NULL, -EPERM, 0},
    {"umount2", SYS_umount2, {DATA, 0}, NULL, -EPERM, 0},
    {"fsopen", 430, {DATA, 0}, NULL, -EPERM, 0},
    {"open_tree", 428, {HERE, DATA, 0}, NULL, -EPERM, 0},
    {"move_mount", 429, {0, DATA, 0, DATA, 0}, NULL, -EPERM, 0},
    {"mount_setattr", 442, {0, DATA, 0, DATA, 32}, NULL, -EPERM, 0},
    {"statmount", 457, {DATA, DATA, 512, 0}, NULL, -EPERM, 0},
    {"listmount", 458, {DATA, DATA, 1, 0}, NULL, -EPERM, 0},
    {"chroot", SYS_chroot, {DATA}, NULL, -EPERM, 0},
    {"pivot_root", SYS_pivot_root, {DATA, DATA}, NULL, -EPERM, 0},
    {"acct", SYS_acct, {0}, NULL, -EPERM, 0},
    {"iopl", SYS_iopl, {3}, NULL, -EPERM, 0},
    {"ioperm", SYS_ioperm, {0, 1, 1}, NULL, -EPERM, 0},
    {"modify_ldt", SYS_modify_ldt, {0, DATA, 16}, NULL, -EPERM, 0},
    {"personality", SYS_personality, {0x0040000}, NULL, -EPERM, 0},
    {"ioctl TIOCSTI", SYS_ioctl, {2, 0x5412, DATA}, NULL, -EPERM, 0},
    {"ioctl TIOCLINUX", SYS_ioctl, {2, 0x541c, DATA}, NULL, -EPERM, 0},
    {"ioctl TIOCSPGRP", SYS_ioctl, {2, 0x5410, DATA}, NULL, -EPERM, 0},
    {"ioctl TIOCSCTTY", SYS_ioctl, {2, 0x540e, DATA}, NULL, -EPERM, 0},
    {"ioctl TIOCNOTTY", SYS_ioctl, {2, 0x5422, DATA}, NULL, -EPERM, 0},
    {"ioctl TIOCSWINSZ", SYS_ioctl, {2, 0x5414, DATA}, NULL, -EPERM, 0},
    {"ioctl TIOCSETD", SYS_ioctl, {2, 0x5423, DATA}, NULL, -EPERM, 0},
    {"ioctl TIOCCONS", SYS_ioctl, {2, 0x541d, DATA}, NULL, -EPERM, 0},
    {"ioctl TIOCEXCL", SYS_ioctl, {2, 0x540c, DATA}, NULL, -EPERM, 0},
    {"ioctl TIOCVHANGUP", SYS_ioctl, {2, 0x5437, DATA}, NULL, -EPERM, 0},
    {"ioctl TCSETS", SYS_ioctl, {2, 0x5402, DATA}, NULL, -EPERM, 0},
    {"ioctl TCSETSW", SYS_ioctl, {2, 0x5403, DATA}, NULL, -EPERM, 0},
    {"ioctl TCSETSF", SYS_ioctl, {2, 0x5404, DATA}, NULL, -EPERM, 0},
    {"ioctl TCSETA", SYS_ioctl, {2, 0x5406, DATA}, NULL, -EPERM, 0},
    {"ioctl TCXONC", SYS_ioctl, {2, 0x540a, DATA}, NULL, -EPERM, 0},
    {"ioctl TCFLSH", SYS_ioctl, {2, 0x540b, DATA}, NULL, -EPERM, 0},
    {"ioctl TCSETS2", SYS_ioctl, {2, 0x402c542b, DATA}, NULL, -EPERM, 0},
    {"ioctl TCSETSW2", SYS_ioctl, {2, 0x402c542c, DATA}, NULL, -EPERM, 0},
    {"ioctl TCSETSF2", SYS_ioctl, {2, 0x402c542d, DATA}, NULL, -EPERM, 0},
    {"ioctl TIOCSIG", SYS_ioctl, {2, 0x40045436, DATA}, NULL, -EPERM, 0},
    {"ptrace by its x32 number", 0x40000000 | 521, {16, OTHER, 0, 0}, NULL, -ENOSYS, 0},
    {"getpid by its x32 number", 0x40000000 | 39, {0}, NULL, -ENOSYS, 0},
    {"a call that is newer than the list", 500, {0}, NULL, -ENOSYS, 0},
    {"shmget", SYS_shmget, {0, 4096, 01600}, NULL, -EPERM, 0},
    {"shmat", SYS_shmat, {0, 0, 0}, NULL, -EPERM, 0},
    {"shmctl", SYS_shmctl, {0, 14, DATA}, NULL, -EPERM, 0},
    {"semget", SYS_semget, {0, 1, 01600}, NULL, -EPERM, 0},
    {"semop", SYS_semop, {0, DATA, 1}, NULL, -EPERM, 0},
    {"semctl", SYS_semctl, {0, 0, 19, DATA}, NULL, -EPERM, 0},
    {"msgget", SYS_msgget, {0, 01600}, NULL, -EPERM, 0},
    {"msgsnd", SYS_msgsnd, {0, DATA, 1, 0}, NULL, -EPERM, 0},
    {"mq_open", SYS_mq_open, {TEXT, 0102, 0600, 0}, "causeway-sandbox", -EPERM, 0},
    {"mq_unlink", SYS_mq_unlink, {TEXT}, "causeway-sandbox", -EPERM, 0},
};

/* ---- sockets ---- */

#define SOCKET(name, family, type, protocol) \
    {"socket of " name, SYS_socket, {family, type, protocol}, NULL, -EPERM, 0}

/* Connections without the call that Landlock judges. */
#define FAST \
    {"a TCP socket", SYS_socket, {AF_INET, SOCK_STREAM, IPPROTO_TCP}, NULL, WORKS, 1}, \
    {"sendto with MSG_FASTOPEN", SYS_sendto, {KEPT, DATA, 1, FASTOPEN, ADDRESS, 16}, NULL, -EPERM, 0}, \
    {"sendmsg with MSG_FASTOPEN", SYS_sendmsg, {KEPT, MESSAGE, FASTOPEN | MSG_NOSIGNAL}, NULL, -EPERM, 0}, \
    {"sendmmsg with MSG_FASTOPEN", SYS_sendmmsg, {KEPT, MESSAGE, 1, FASTOPEN}, NULL, -EPERM, 0}, \
    {"another protocol's socket of TCP's", SYS_setsockopt, {KEPT, IPPROTO_TCP, 31, TEXT, 4}, "smc", -EPERM, 0}, \
    SOCKET("MPTCP", AF_INET, SOCK_STREAM, MPTCP), \
    SOCKET("MPTCP over IPv6", AF_INET6, SOCK_STREAM, MPTCP), \
    SOCKET("SCTP", AF_INET, SOCK_STREAM, 132), \
    SOCKET("SCTP in packets", AF_INET, SOCK_SEQPACKET, 132), \
    SOCKET("SMC", AF_INET, SOCK_STREAM, 256), \
    SOCKET("SMC, as a family", 43, SOCK_STREAM, 0), \
    SOCKET("RDS", 21, SOCK_SEQPACKET, 0)

static const struct probe SOCKETS[] = {
    FAST,
    {"a TCP socket", SYS_socket, {AF_INET, SOCK_STREAM, 0}, NULL, WORKS, 1},
    {"listen without bind", SYS_listen, {KEPT, 1}, NULL, -EPERM, 0},
    {"bind", SYS_bind, {KEPT, ADDRESS, 16}, NULL, -EACCES, 0},
    {"a TCP socket of IPv6", SYS_socket, {AF_INET6, SOCK_STREAM, 0}, NULL, WORKS, 1},
    {"listen over IPv6", SYS_listen, {KEPT, 1}, NULL, -EPERM, 0},
    {"a Unix socket", SYS_socket, {AF_UNIX, SOCK_STREAM, 0}, NULL, WORKS, 1},
    {"listen on a Unix socket", SYS_listen, {KEPT, 1}, NULL, -EPERM, 0},
    SOCKET("UDP-Lite", AF_INET, SOCK_DGRAM, 136),
    SOCKET("DCCP", AF_INET, 6, 33),
    SOCKET("ping", AF_INET, SOCK_DGRAM, IPPROTO_ICMP),
    SOCKET("raw packets", AF_INET, SOCK_RAW, IPPROTO_ICMP),
    SOCKET("packets", AF_PACKET, SOCK_RAW, 0),
    SOCKET("virtual machines", AF_VSOCK, SOCK_STREAM, 0),
    SOCKET("cryptography", AF_ALG, SOCK_SEQPACKET, 0),
    SOCKET("Bluetooth", AF_BLUETOOTH, SOCK_RAW, 0),
    SOCKET("CAN", AF_CAN, SOCK_RAW, 1),
    SOCKET("keys", AF_KEY, SOCK_RAW, 2),
    SOCKET("TIPC", AF_TIPC, SOCK_SEQPACKET, 0),
    SOCKET("XDP", 44, SOCK_RAW, 0),
    SOCKET("netlink about sockets", AF_NETLINK, SOCK_RAW, 4),
    SOCKET("netlink about filters", AF_NETLINK, SOCK_RAW, 12),
    SOCKET("netlink in general", AF_NETLINK, SOCK_RAW, 16),
};

/* For nodes whose settings only allow another port. */
static const struct probe PORTS_ALLOWED[] = {
    FAST,
    {"connect", SYS_connect, {KEPT, ADDRESS, 16}, NULL, -EACCES, 0},
    {"a TCP socket", SYS_socket, {AF_INET, SOCK_STREAM, 0}, NULL, WORKS, 1},
    {"TCP_FASTOPEN_CONNECT", SYS_setsockopt, {KEPT, IPPROTO_TCP, 30, MASK, 4}, NULL, WORKS, 0},
    {"connect later", SYS_connect, {KEPT, ADDRESS, 16}, NULL, -EACCES, 0},
    SOCKET("UDP", AF_INET, SOCK_DGRAM, 0),
    SOCKET("UDP, closed by exec", AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_UDP),
    SOCKET("UDP over IPv6", AF_INET6, SOCK_DGRAM, 0),
    {"a Unix socket for datagrams", SYS_socket, {AF_UNIX, SOCK_DGRAM, 0}, NULL, WORKS, 0},
};

static const struct table PORTS = TABLE("ports", PORTS_ALLOWED);
static const struct table ALL[] = {
    TABLE("uses", USES),
    TABLE("files", FILES),
    TABLE("attributes", ATTRIBUTES_OF_FILES),
    TABLE("processes", PROCESSES),
    TABLE("calls", CALLS),
    TABLE("sockets", SOCKETS),
};
enum { TABLES = sizeof ALL / sizeof *ALL };

#endif

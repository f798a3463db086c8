/* What the kernel alone asks for a sandbox: one clone into new pid, mount, ipc, uts and net namespaces (and a user
 * namespace without root), tmpfs and overlay, read-only system directories, proc, pivot_root, exec, wait. No filter, no
 * control group, no /dev, no supervisor.
 *
 *     sandbox_floor COUNT SKELETON SCRATCH PROGRAM DIRECTORY...
 *
 * SKELETON   lower layer: an empty directory for proc and for every DIRECTORY, and the links of the system (/bin)
 * SCRATCH    an empty directory to mount on
 * PROGRAM    what to run inside, by its absolute path
 * DIRECTORY  absolute paths to bind, read-only
 *
 * Prints the nanoseconds of each of COUNT sandboxes, one per line. COUNT 0: one sandbox for every byte on stdin.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NAMESPACES (CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET)

/* linux/mount.h and sys/mount.h cannot be included together in older C libraries. */
struct attributes { uint64_t set, clear, propagation, userns; };
#define ATTRIBUTE_READ_ONLY 1

static char **directories;
static const char *skeleton, *scratch, *program;

static void must(long result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "sandbox_floor: %s: %s\n", what, strerror(errno));
        _exit(99);
    }
}

static void write_file(const char *path, const char *text)
{
    int file = open(path, O_WRONLY | O_CLOEXEC);
    must(file, path);
    must(write(file, text, strlen(text)), path);
    close(file);
}

static void map_ids(uid_t uid, gid_t gid)
{
    char line[64];
    write_file("/proc/self/setgroups", "deny");
    snprintf(line, sizeof line, "0 %u 1", (unsigned)uid);
    write_file("/proc/self/uid_map", line);
    snprintf(line, sizeof line, "0 %u 1", (unsigned)gid);
    write_file("/proc/self/gid_map", line);
}

static void bind_read_only(const char *directory)
{
    char target[4096];
    struct attributes read_only = {.set = ATTRIBUTE_READ_ONLY};
    snprintf(target, sizeof target, "root%s", directory);
    must(mount(directory, target, NULL, MS_BIND | MS_REC, NULL), target);
    must(syscall(SYS_mount_setattr, AT_FDCWD, target, AT_RECURSIVE, &read_only, sizeof read_only), "mount_setattr");
}

static void become_sandbox(int rootless, uid_t uid, gid_t gid)
{
    char options[8192];
    if (rootless)
        map_ids(uid, gid);
    must(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), "private mounts");
    must(mount("tmpfs", scratch, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755"), "tmpfs");
    must(chdir(scratch), scratch);
    must(mkdir("upper", 0755), "upper");
    must(mkdir("work", 0755), "work");
    must(mkdir("root", 0755), "root");
    snprintf(options, sizeof options, "lowerdir=%s,upperdir=upper,workdir=work%s", skeleton,
             rootless ? ",userxattr" : "");
    must(mount("overlay", "root", "overlay", MS_NOSUID | MS_NODEV, options), "overlay");
    for (char **directory = directories; *directory; directory++)
        bind_read_only(*directory);
    must(mount("proc", "root/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL), "proc");
    must(chdir("root"), "root");
    must(syscall(SYS_pivot_root, ".", "."), "pivot_root");
    must(umount2(".", MNT_DETACH), "umount of the old root");
    char *argv[] = {(char *)program, NULL}, *envp[] = {NULL};
    must(execve(program, argv, envp), program);
}

static long long now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void time_one(int rootless)
{
    long flags = NAMESPACES | (rootless ? CLONE_NEWUSER : 0) | SIGCHLD;
    uid_t uid = geteuid();
    gid_t gid = getegid();
    int status;
    long long start = now_ns();
    long pid = syscall(SYS_clone, flags, NULL, NULL, NULL, 0L);
    must(pid, "clone");
    if (pid == 0)
        become_sandbox(rootless, uid, gid);
    must(waitpid((pid_t)pid, &status, 0), "waitpid");
    long long wall = now_ns() - start;
    if (status != 0) {
        fprintf(stderr, "sandbox_floor: the sandbox ended with status %d\n", status);
        exit(1);
    }
    printf("%lld\n", wall);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        fprintf(stderr, "usage: sandbox_floor COUNT SKELETON SCRATCH PROGRAM DIRECTORY...\n");
        return 2;
    }
    int rootless = geteuid() != 0;
    long count = atol(argv[1]);
    char byte;
    skeleton = argv[2];
    scratch = argv[3];
    program = argv[4];
    directories = argv + 5;
    if (count == 0)
        while (read(STDIN_FILENO, &byte, 1) == 1)
            time_one(rootless);
    for (long number = 0; number < count; number++)
        time_one(rootless);
    return 0;
}

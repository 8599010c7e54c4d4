/* Loaded before the C library (LD_PRELOAD), this makes a disk fail in the way that a test sets by the variables below. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

volatile long faults_calls;          /* calls so far that change a file, or have it synced */
volatile long faults_syncs;          /* of those, syncs */
volatile long faults_kill_at;        /* before this call the process is killed; 0: never */
volatile long faults_no_space_from;  /* from this call on, writes find no space; 0: never */
volatile long faults_no_space_until; /* and this is the last call that finds none; 0: for ever */
volatile long faults_fail_sync_at;   /* this sync fails; 0: none */
volatile long faults_sync_delay_us;  /* a sync takes so much longer */
volatile long faults_keep_synced;    /* beside each file, keep what of it was synced, as <file>.synced */

__attribute__((constructor)) static void as_the_environment_says(void) {
    const char *delay = getenv("FOLDLOG_SYNC_DELAY_US");
    if (delay) faults_sync_delay_us = atol(delay);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static long next_call(void) {
    long call = __sync_add_and_fetch(&faults_calls, 1);
    if (call == faults_kill_at) kill(getpid(), SIGKILL);
    return call;
}

static int no_space(long call) {
    if (!faults_no_space_from || call < faults_no_space_from) return 0;
    if (faults_no_space_until && call > faults_no_space_until) return 0;
    errno = ENOSPC;
    return 1;
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset) {
    return no_space(next_call()) ? -1 : REAL(pwrite)(fd, bytes, count, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset) {
    return no_space(next_call()) ? -1 : REAL(pwrite64)(fd, bytes, count, offset);
}

int ftruncate(int fd, off_t length) { next_call(); return REAL(ftruncate)(fd, length); }

int ftruncate64(int fd, off64_t length) { next_call(); return REAL(ftruncate64)(fd, length); }

int unlink(const char *path) { next_call(); return REAL(unlink)(path); }

static void keep_synced(int fd) {
    char link[64], path[PATH_MAX], bytes[65536];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 8);
    if (length < 0) return;
    strcpy(path + length, ".synced");
    int from = open(link, O_RDONLY), to = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    off_t offset = 0;
    for (ssize_t got; from >= 0 && (got = pread(from, bytes, sizeof bytes, offset)) > 0; offset += got)
        if (REAL(pwrite)(to, bytes, got, offset) != got) break;
    close(to);
    close(from);
}

static int synced(int fd, int (*sync)(int)) {
    next_call();
    if (__sync_add_and_fetch(&faults_syncs, 1) == faults_fail_sync_at) {
        errno = EIO;
        return -1;
    }
    if (faults_sync_delay_us) {
        struct timespec delay = {faults_sync_delay_us / 1000000, faults_sync_delay_us % 1000000 * 1000};
        nanosleep(&delay, NULL);
    }
    int result = sync(fd);
    if (result == 0 && faults_keep_synced) keep_synced(fd);
    return result;
}

int fdatasync(int fd) { return synced(fd, REAL(fdatasync)); }

int fsync(int fd) { return synced(fd, REAL(fsync)); }

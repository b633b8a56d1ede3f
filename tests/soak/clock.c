/* A wall clock that a test sets. Preloaded into a server, this library adds seconds to every reading
 * of the real-time clock: a 64-bit integer in the file that SOAK_CLOCK names. Other clocks do not
 * change. A wait until a time of the real-time clock ends at the shifted time.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t none = 0;
static const volatile int64_t *ahead = &none;
static int (*real_gettime)(clockid_t, struct timespec *);
static long (*real_syscall)(long, ...);

__attribute__((constructor)) static void begin(void)
{
    real_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    real_syscall = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    const char *path = getenv("SOAK_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED)
        ahead = mapped;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (!real_gettime)
        begin();
    int failed = real_gettime(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += *ahead;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    (void)zone;
    struct timespec read;
    int failed = clock_gettime(CLOCK_REALTIME, &read);
    now->tv_sec = read.tv_sec;
    now->tv_usec = read.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *kept)
{
    struct timespec read;
    clock_gettime(CLOCK_REALTIME, &read);
    if (kept)
        *kept = read.tv_sec;
    return read.tv_sec;
}

/* Locks of gRPC wait in the kernel until a time of the real-time clock. */
long syscall(long number, ...)
{
    va_list given;
    long a[6];
    va_start(given, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(given, long);
    va_end(given);
    struct timespec until;
    if (number == SYS_futex && (a[1] & FUTEX_CLOCK_REALTIME) && a[3]) {
        until = *(const struct timespec *)a[3];
        until.tv_sec -= *ahead;
        a[3] = (long)&until;
    }
    return real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

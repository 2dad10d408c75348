/* A clang with a policy inside: the real clang does everything, and asks a policy for its decisions.

   A line that is nothing to ask about (line.c) becomes the real clang at once, by execv. Else there are three
   processes:

     the wrapper     what a build starts. It waits, forwards signals, and ends as the compiler did: with its exit code,
                     or by its signal.
     the host        its child, in a process group of its own, so that it survives who kills the wrapper's. It makes the
                     channel, starts the compiler, answers (session.c) and removes the channel. It sees the wrapper's
                     end, even by SIGKILL, for a pipe is closed by it; then it ends the compiler.
     the compiler    the real clang, in a process group of its own, with all processes that it starts. It has the
                     wrapper's standard streams, folder and environment, and is ended by the kernel if the host dies.

   The channel is in a folder in TMPDIR that the compiler reaches by an inherited descriptor, so that its command line,
   which some objects hold, is the same each time. The folder is locked as scratch folders of mlgo-corpus are: even if
   wrapper and host are killed at once, the next mlgo-corpus removes it.

   If anything goes wrong with the policy, the compiler is ended, one line tells why, and the plain compile is done. */

#include "native.h"
#include "policy.h"
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __linux__
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
enum { TOLD_TO_END = 1 }; /* the kernel ends the compiler where the host dies */
#else
enum { TOLD_TO_END = 0 };
#endif

/* The descriptor by which the compiler reaches the channel's folder, if it is free: usually above all others. */
enum { FOLDER_DESCRIPTOR = 100, GRACE_MS = 5000, NAP_MS = 5 };

/* What the host reports to the wrapper. */
enum { STARTED, FOLDER, ENDED, FAILED };
struct report {
    int kind;
    int value;          /* STARTED: the compiler's process group; ENDED: its status */
    char text[400];     /* FOLDER: its path; FAILED: why */
};

/* The process or, if negative, the group that gets the signals that this process gets. */
static volatile sig_atomic_t target;
static volatile sig_atomic_t asked_to_end;
static int wake[2] = {-1, -1};
/* The blocked signals that the compiler inherits, and those of the wrapper and the host, which need SIGCHLD. */
static sigset_t inherited, own;

static const int FORWARDED[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
enum { FORWARDED_COUNT = sizeof FORWARDED / sizeof *FORWARDED };

static void on_signal(int number)
{
    int kept = errno;
    if (number == SIGCHLD) {
        ssize_t ignored = write(wake[1], "", 1);
        (void)ignored;
    } else if (number != SIGPIPE) {
        asked_to_end = number;
        if (target != 0)
            kill((pid_t)target, number);
    }
    errno = kept;
}

static void say(const char *format, ...)
{
    char line[600];
    va_list arguments;
    va_start(arguments, format);
    int used = snprintf(line, sizeof line, "mlgo-corpus: policy %.100s: ", POLICY_NAME);
    vsnprintf(line + used, sizeof line - (size_t)used - 1, format, arguments);
    va_end(arguments);
    strcat(line, "\n");
    ssize_t ignored = write(2, line, strlen(line));
    (void)ignored;
}

/* --- the commands */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static int ends_with(const char *text, size_t length, const char *with)
{
    size_t size = strlen(with);
    return length >= size && memcmp(text + length - size, with, size) == 0;
}

/* Return the length of a program's name without the version behind it: clang++-22. */
static size_t plain_length(const char *name)
{
    size_t length = strlen(name), digits = length;
    while (digits > 0 && strchr("0123456789.", name[digits - 1]) != NULL)
        digits--;
    return digits < length && digits > 0 && name[digits - 1] == '-' ? digits - 1 : length;
}

static int is_cxx(const char *name)
{
    return ends_with(name, plain_length(name), "++");
}

/* Names of drivers that take other options than clang's. */
static int is_other(const char *name)
{
    size_t length = plain_length(name);
    return ends_with(name, length, "-cl") || ends_with(name, length, "-cpp") || ends_with(name, length, "-dxc");
}

/* Return the real driver's line: its words, then the options, then the user's words. */
static char **command(int count, char **words, char *const *options)
{
    const char *name = base_name(words[0]);
    const char *const *driver = is_cxx(name) ? CXX_DRIVER : C_DRIVER;
    size_t size = (size_t)count + 1;
    for (int i = 0; driver[i] != NULL; i++)
        size++;
    for (int i = 0; options != NULL && options[i] != NULL; i++)
        size++;
    char **made = malloc(size * sizeof *made), **to = made;
    if (made == NULL)
        return NULL;
    for (int i = 0; driver[i] != NULL; i++)
        *to++ = (char *)driver[i];
    /* By a link of another name, such as aarch64-linux-gnu-clang, clang is told its target and language. */
    if (driver[1] == NULL && strcmp(name, "clang") != 0 && strcmp(name, "clang++") != 0)
        made[0] = words[0];
    for (int i = 0; options != NULL && options[i] != NULL; i++)
        *to++ = options[i];
    for (int i = 1; i < count; i++)
        *to++ = words[i];
    *to = NULL;
    return made;
}

static const char *program(const char *name)
{
    return is_cxx(base_name(name)) ? CXX_DRIVER[0] : C_DRIVER[0];
}

static int become(const char *name, char **words)
{
    if (words != NULL)
        execv(program(name), words);
    int error = words != NULL ? errno : ENOMEM;
    fprintf(stderr, "mlgo-corpus: %s: cannot be run: %s\n", program(name), strerror(error));
    return 127;
}

/* --- small things of the system */

static int no_inherit(int descriptor)
{
    return descriptor < 0 ? -1 : fcntl(descriptor, F_SETFD, FD_CLOEXEC);
}

/* Make a file without a name. */
static int nameless_file(void)
{
#ifdef __linux__
    int made = memfd_create("mlgo-corpus", MFD_CLOEXEC);
    if (made >= 0)
        return made;
#endif
    FILE *file = tmpfile();
    return file == NULL ? -1 : fcntl(fileno(file), F_DUPFD_CLOEXEC, 3);
}

static int make_pipe(int ends[2])
{
    return pipe(ends) == 0 && no_inherit(ends[0]) == 0 && no_inherit(ends[1]) == 0 ? 0 : -1;
}

/* Return whether a read or a write that failed is to be tried again; of a stream that does not block, when it is ready. */
static int try_again(int descriptor, short event)
{
    struct pollfd polled = {descriptor, event, 0};
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return poll(&polled, 1, -1) >= 0 || errno == EINTR;
    return errno == EINTR;
}

static int copy_all(int from, int to)
{
    char data[1 << 14];
    for (;;) {
        ssize_t got = read(from, data, sizeof data);
        if (got < 0 && try_again(from, POLLIN))
            continue;
        if (got <= 0)
            return (int)got;
        for (ssize_t done = 0; done < got;) {
            ssize_t sent = write(to, data + done, (size_t)(got - done));
            if (sent < 0 && !try_again(to, POLLOUT))
                return -1;
            done += sent > 0 ? sent : 0;
        }
    }
}

/* --- the channel's folder */

struct channel {
    char folder[300];
    int descriptor;      /* of the folder; -1 if there is none */
    int in, out;
};

static void remove_channel(const char *folder)
{
    static const char *const names[] = {"/c.in", "/c.out", ""};
    char path[sizeof((struct channel *)0)->folder + 8];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s%s", folder, names[i]);
        if (i < 2)
            unlink(path);
        else
            rmdir(path);
    }
}

static int open_fifo(const struct channel *channel, const char *name)
{
    if (mkfifoat(channel->descriptor, name, 0600) < 0)
        return -1;
    /* Both ends stay open here: a compiler that reads of an end would read for ever. */
    return openat(channel->descriptor, name, O_RDWR | O_NONBLOCK | O_CLOEXEC);
}

static int try_channel(struct channel *channel)
{
    const char *parent = getenv("TMPDIR");
    channel->folder[0] = '\0';
    channel->descriptor = channel->in = channel->out = -1;
    if (parent == NULL || parent[0] != '/')
        parent = "/tmp";
    if (snprintf(channel->folder, sizeof channel->folder, "%s/" SCRATCH_PREFIX "XXXXXX", parent)
        >= (int)sizeof channel->folder) {
        errno = ENAMETOOLONG;
        return -1;
    }
    if (mkdtemp(channel->folder) == NULL)
        return -1;
    int made = open(channel->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (made < 0)
        return -1;
    if (flock(made, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) { /* not every file system has locks */
        close(made);
        errno = EWOULDBLOCK;
        return -1;
    }
    channel->descriptor = fcntl(made, F_DUPFD, FOLDER_DESCRIPTOR);
    if (channel->descriptor < 0) /* a low limit of descriptors */
        channel->descriptor = fcntl(made, F_DUPFD, 3);
    close(made);
    if (channel->descriptor < 0)
        return -1;
    channel->in = open_fifo(channel, "c.in");
    channel->out = channel->in < 0 ? -1 : open_fifo(channel, "c.out");
    return channel->out < 0 ? -1 : 0;
}

/* Make the folder and the channel in it. Return 0, or -1 and errno. */
static int make_channel(struct channel *channel)
{
    /* Until it is locked here, a folder may be locked and removed by a process that takes it for abandoned. */
    for (int tries = 0; tries < 5; tries++)
        if (try_channel(channel) == 0)
            return 0;
        else if (errno != EWOULDBLOCK
                 && (errno != ENOENT || channel->folder[0] == '\0' || access(channel->folder, F_OK) == 0))
            break;
    return -1;
}

/* Write the path of a file that is in the folder above the program's own. Return 0, or -1. */
static int path_beside(const char *name, char *path, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", path, size - 1);
    path[length > 0 ? length : 0] = '\0';
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(path, '/');
        if (slash == NULL)
            return -1;
        *slash = '\0';
    }
    size_t folder = strlen(path);
    return snprintf(path + folder, size - folder, "/%s", name) < (int)(size - folder) ? 0 : -1;
}

int open_beside(const char *name)
{
    char path[4096];
    return path_beside(name, path, sizeof path) == 0 ? open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1;
}

/* Return the option that loads the plugin, which is in the folder above the program's own; NULL if it is not there. */
static char *plugin_option(void)
{
    enum { BEFORE = sizeof PLUGIN_OPTION - 1 };
    static char option[BEFORE + 4096] = PLUGIN_OPTION;
    return path_beside(PLUGIN, option + BEFORE, sizeof option - BEFORE) == 0 && access(option + BEFORE, R_OK) == 0
        ? option : NULL;
}

/* Tell whether the plugin can read the table of the project's functions, which is the number of its rows and then the
   rows. The plugin would wait for ever for a FIFO, and of a damaged table tell nothing. */
static int has_copies(void)
{
    enum { ROW = 2 * sizeof(uint64_t) };
    struct stat status;
    uint64_t rows;
    int file = open_beside(COPIES);
    if (file < 0)
        return 0;
    int is_sound = fstat(file, &status) == 0 && S_ISREG(status.st_mode)
                   && read(file, &rows, sizeof rows) == (ssize_t)sizeof rows
                   && (uint64_t)status.st_size % ROW == sizeof rows && (uint64_t)status.st_size / ROW == rows;
    close(file);
    return is_sound;
}

/* Return the options that have the compiler ask over the channel. */
static char **channel_options(const struct channel *channel, const struct line *line)
{
    enum { MOST = 32 };
    static char base[sizeof channel->folder + 64], *words[MOST];
    char path[64];
    int count = 0;
    struct stat status;
    snprintf(path, sizeof path, "/proc/self/fd/%d/c", channel->descriptor);
    snprintf(base, sizeof base, "%s.in", path);
    int has_proc = stat(base, &status) == 0;
    snprintf(base, sizeof base, "%s=%s%s", CHANNEL_OPTION, has_proc ? path : channel->folder, has_proc ? "" : "/c");
    words[count++] = "--start-no-unused-arguments";
    if (PLUGIN[0] != '\0' && (words[count] = plugin_option()) != NULL)
        count++;
    for (int i = 0; ADVISOR_OPTIONS[i] != NULL && count < MOST - 8; i++) {
        words[count++] = "-mllvm";
        words[count++] = (char *)ADVISOR_OPTIONS[i];
    }
    words[count++] = "-mllvm";
    words[count++] = base;
    if (line->by_default && !SENDS_DEFAULT) {
        words[count++] = "-mllvm";
        words[count++] = DEFAULT_OPTION;
    }
    const char *growth = line->found.count > 0 ? FOUND_GROWTH : GROWTH;
    if (growth[0] != '\0' && !line->has_growth) {
        words[count++] = "-mllvm";
        words[count++] = (char *)growth;
    }
    words[count++] = "--end-no-unused-arguments";
    words[count] = NULL;
    return words;
}

/* --- the processor */

/* To wake a process on another processor is dear, above all in a virtual machine: a question and its answer were measured
   to take 45 microseconds of processor time there, and 6 on the same processor. So the host stays on the compiler's. */
struct place {
    pid_t compiler;      /* the process that was started, perhaps a driver whose child asks */
    int file;            /* the state of the process that asks; -1 before */
    int processor;       /* where this process stays; -1 if anywhere */
    long headers;        /* of the session when that process was looked for */
    long decisions;      /* when the processor was looked at */
};

#ifdef __linux__
enum { DECISIONS_BETWEEN = 16 };

static cpu_set_t anywhere;

static int read_text(int file, char *text, size_t size)
{
    ssize_t got = file < 0 ? -1 : pread(file, text, size - 1, 0);
    text[got > 0 ? got : 0] = '\0';
    return got > 0;
}

/* Open the state of a process's last child or, if it has none, of itself. */
static int open_state(pid_t process)
{
    char name[64], text[512];
    long number = process;
    snprintf(name, sizeof name, "/proc/%ld/task/%ld/children", number, number);
    int file = open(name, O_RDONLY | O_CLOEXEC);
    if (read_text(file, text, sizeof text)) {
        char *at = text;
        for (long next; (next = strtol(at, &at, 10)) > 0;)
            number = next;
    }
    if (file >= 0)
        close(file);
    snprintf(name, sizeof name, "/proc/%ld/stat", number);
    return open(name, O_RDONLY | O_CLOEXEC);
}

static int processor_of(int file)
{
    enum { FIELDS = 37 }; /* from the state, which is behind the name in brackets, to the processor */
    char text[1024];
    char *at = read_text(file, text, sizeof text) ? strrchr(text, ')') : NULL;
    for (int i = 0; at != NULL && i < FIELDS; i++)
        at = strchr(at + 1, ' ');
    return at != NULL ? atoi(at) : -1;
}

static void stay_beside(struct place *place, const struct session *session)
{
    if (place->headers != session->headers) {
        place->headers = session->headers;
        place->decisions = session->decisions - DECISIONS_BETWEEN;
        if (place->file >= 0)
            close(place->file);
        place->file = open_state(place->compiler);
    }
    if (session->decisions - place->decisions < DECISIONS_BETWEEN)
        return;
    place->decisions = session->decisions;
    int processor = processor_of(place->file);
    if (processor >= 0 && processor < CPU_SETSIZE && processor != place->processor) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(processor, &one);
        if (sched_setaffinity(0, sizeof one, &one) == 0)
            place->processor = processor;
    }
}

static void begin_anywhere(void)
{
    if (sched_getaffinity(0, sizeof anywhere, &anywhere) < 0)
        CPU_ZERO(&anywhere);
}

static void go_anywhere(void)
{
    if (CPU_COUNT(&anywhere) > 0)
        sched_setaffinity(0, sizeof anywhere, &anywhere);
}
#else
static void stay_beside(struct place *place, const struct session *session)
{
    (void)place;
    (void)session;
}

static void begin_anywhere(void) {}
static void go_anywhere(void) {}
#endif

/* --- the host */

struct host {
    struct line *line;
    int count;
    char **words;
    int life;            /* is closed when the wrapper ends */
    int reports;
    int stdin_copy;      /* standard input, if it is the source; else -1 */
    int stdout_copy;     /* takes the output, if that is standard output; else -1 */
    struct channel channel;
    struct session session;
};

static void report(const struct host *host, int kind, int value, const char *text)
{
    struct report made;
    memset(&made, 0, sizeof made);
    made.kind = kind;
    made.value = value;
    snprintf(made.text, sizeof made.text, "%s", text);
    ssize_t ignored = write(host->reports, &made, sizeof made);
    (void)ignored;
}

/* End a group as gently as it allows: on SIGTERM compilers remove their temporary files, but not if a second one comes
   at once: a group that was told to end, by a forwarded signal or by the kernel, is given time first. */
static void end_group(pid_t group, int is_told)
{
    static const int numbers[] = {0, SIGTERM, SIGKILL};
    for (int i = is_told ? 0 : 1; i < 3; i++) {
        kill(-group, numbers[i]);
        for (int waited = 0; waited < GRACE_MS; waited += NAP_MS) {
            while (waitpid(-1, NULL, WNOHANG) > 0)
                ;
            if (kill(-group, 0) < 0 && errno == ESRCH)
                return;
            poll(NULL, 0, NAP_MS);
        }
    }
}

static void block_signals(void)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
}

static void unblock_signals(void)
{
    sigprocmask(SIG_SETMASK, &own, NULL);
}

static void restore_signals(void)
{
    struct sigaction action;
    static const int others[] = {SIGCHLD, SIGPIPE};
    for (int i = 0; i < FORWARDED_COUNT + 2; i++) {
        int number = i < FORWARDED_COUNT ? FORWARDED[i] : others[i - FORWARDED_COUNT];
        if (sigaction(number, NULL, &action) == 0 && action.sa_handler == on_signal)
            signal(number, SIG_DFL);
    }
    sigprocmask(SIG_SETMASK, &inherited, NULL);
}

static void catch_signal(int number)
{
    struct sigaction action;
    if (sigaction(number, NULL, &action) < 0 || (action.sa_handler == SIG_IGN && number != SIGCHLD))
        return; /* as nohup and shells have it: the compiler ignores it, too */
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    sigfillset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

static void use_as(int descriptor, int standard)
{
    if (descriptor >= 0 && dup2(descriptor, standard) < 0)
        _exit(127);
}

/* Start the compiler; negative descriptors leave a standard stream as it is. To `too_long`, if it is not negative, a
   byte is written if the system does not take so long a line. */
static pid_t start(const struct host *host, char **words, int out, int err, int too_long)
{
    pid_t parent = getpid();
    block_signals();
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
#ifdef __linux__
        prctl(PR_SET_PDEATHSIG, SIGTERM);
#endif
        if (getppid() != parent)
            _exit(127);
        if (host->stdin_copy >= 0)
            lseek(host->stdin_copy, 0, SEEK_SET);
        use_as(host->stdin_copy, 0);
        use_as(out, 1);
        use_as(err, 2);
        restore_signals();
        signal(SIGTTOU, SIG_IGN); /* it writes to its terminal, although it is in another group */
        if (too_long >= 0) {
            execv(program(host->words[0]), words);
            if (errno == E2BIG) {
                ssize_t ignored = write(too_long, "", 1);
                (void)ignored;
                _exit(127);
            }
        }
        _exit(become(host->words[0], words));
    }
    if (child > 0) {
        setpgid(child, child);
        target = -child;
        report(host, STARTED, child, "");
    }
    unblock_signals();
    if (child > 0 && asked_to_end)
        kill(-child, asked_to_end);
    return child;
}

static void leave(struct host *host)
{
    if (host->channel.folder[0] != '\0')
        remove_channel(host->channel.folder);
    _exit(0);
}

/* Run the compiler, and answer if there is a session. Return its status, or -1 with a problem. */
static int run(struct host *host, char **words, struct session *session, int out, int err, const char **problem)
{
    int status = 0, done = 0, too_long[2] = {-1, -1};
    *problem = NULL;
    /* The session's options may make the line longer than the system allows, although the plain one is not. */
    int has_pipe = session != NULL && make_pipe(too_long) == 0;
    pid_t child = words == NULL ? -1 : start(host, words, out, err, has_pipe ? too_long[1] : -1);
    if (child < 0)
        *problem = "no process could be started";
    if (has_pipe) {
        char byte;
        ssize_t got;
        close(too_long[1]);
        while ((got = read(too_long[0], &byte, 1)) < 0 && errno == EINTR)
            ;
        close(too_long[0]); /* its other end is closed when the compiler begins */
        if (got > 0)
            *problem = "the line is too long with the options that it needs";
    }
    if (*problem != NULL) {
        target = 0;
        return -1;
    }
    struct place place = {child, -1, -1, 0, 0};
    while (!done) {
        struct pollfd polled[] = {
            {session != NULL ? session->out : -1, POLLIN, 0}, {wake[0], POLLIN, 0}, {host->life, POLLIN, 0}};
        if (poll(polled, 3, -1) < 0 && errno != EINTR)
            *problem = "poll failed";
        if (polled[2].revents) { /* the wrapper was killed */
            end_group(child, asked_to_end != 0);
            leave(host);
        }
        if (*problem == NULL && polled[0].revents) {
            if (answer_session(session) < 0)
                *problem = session->problem;
            stay_beside(&place, session);
        }
        if (*problem != NULL) {
            end_group(child, asked_to_end != 0);
            break;
        }
        if (polled[1].revents) {
            char drained[64];
            int ended;
            while (read(wake[0], drained, sizeof drained) > 0)
                ;
            for (pid_t pid; (pid = waitpid(-1, &ended, WNOHANG)) > 0;)
                if (pid == child) {
                    status = ended;
                    done = 1;
                }
        }
    }
    if (done && WIFSIGNALED(status))
        end_group(child, asked_to_end != 0); /* a driver leaves the compiles that it has started */
    if (place.file >= 0)
        close(place.file);
    go_anywhere();
    target = 0;
    return *problem == NULL ? status : -1;
}

static int was_crash(int status)
{
    if (!WIFSIGNALED(status))
        return 0;
    int number = WTERMSIG(status);
    return number == SIGSEGV || number == SIGABRT || number == SIGBUS || number == SIGILL || number == SIGFPE;
}

/* What may be the policy's fault: where nothing was decided, the plain compile would do the same. But a plugin that cannot
   be loaded ends a compile before it asks anything, and so does a channel that another process has removed. */
static int may_be_policys(const struct host *host, int status)
{
    if (asked_to_end || !(was_crash(status) || (WIFEXITED(status) && WEXITSTATUS(status) != 0)))
        return 0;
    if (host->session.decisions > 0 || (host->session.headers == 0 && PLUGIN[0] != '\0'))
        return 1;
    int folder = host->channel.descriptor;
    return host->session.headers == 0
           && (faccessat(folder, "c.in", F_OK, 0) < 0 || faccessat(folder, "c.out", F_OK, 0) < 0);
}

static const char *outcome(int status)
{
    static char text[60];
    if (WIFSIGNALED(status))
        snprintf(text, sizeof text, "was killed by signal %d", WTERMSIG(status));
    else
        snprintf(text, sizeof text, "failed with exit code %d", WEXITSTATUS(status));
    return text;
}

static int open_channel(struct host *host, char ***live)
{
    char why[300] = "";
    if (make_channel(&host->channel) < 0)
        snprintf(why, sizeof why, "%s: no channel can be made: %s", host->channel.folder, strerror(errno));
    else if (begin_session(&host->session, host->line, host->channel.in, host->channel.out) < 0)
        snprintf(why, sizeof why, "there is no memory");
    else if (PLUGIN[0] != '\0' && plugin_option() == NULL)
        snprintf(why, sizeof why, "its plugin, %s, cannot be read", PLUGIN);
    else if (COPIES[0] != '\0' && !has_copies())
        snprintf(why, sizeof why, "its table of the project's functions, %s, cannot be read", COPIES);
    report(host, FOLDER, 0, host->channel.folder);
    if (why[0] == '\0') {
        *live = command(host->count, host->words, channel_options(&host->channel, host->line));
        return 0;
    }
    report(host, FAILED, 0, why);
    return -1;
}

/* The object is what the policy makes of it; if that fails, it is the plain compile's. */
static void compile_by_policy(struct host *host)
{
    char **live;
    const char *problem;
    if (open_channel(host, &live) < 0)
        return;
    int status = run(host, live, &host->session, host->stdout_copy, -1, &problem);
    if (problem != NULL) {
        report(host, FAILED, 0, problem);
        return;
    }
    if (may_be_policys(host, status)) {
        /* What there is to say about the code has been said. */
        int failed = status, quiet = open("/dev/null", O_WRONLY | O_CLOEXEC);
        if (host->stdout_copy >= 0 && ftruncate(host->stdout_copy, 0) == 0)
            lseek(host->stdout_copy, 0, SEEK_SET);
        status = run(host, command(host->count, host->words, NULL), NULL,
                     host->stdout_copy >= 0 ? host->stdout_copy : quiet, quiet, &problem);
        if (problem != NULL)
            status = failed;
        else if (status == 0)
            say("the compile with it %s; compiled without it", outcome(failed));
    }
    if (host->stdout_copy >= 0 && status == 0) {
        lseek(host->stdout_copy, 0, SEEK_SET);
        if (copy_all(host->stdout_copy, 1) < 0) {
            if (errno != EPIPE) /* who reads only a part of it knows; clang says nothing then, either */
                say("the output cannot be written: %s", strerror(errno));
            status = 1 << 8;
        }
    }
    report(host, ENDED, status, "");
}

/* --- both ways, and the smaller object */

struct object {
    unsigned char *data;
    size_t size;
    mode_t mode;
};

static int read_object(const char *path, struct object *object)
{
    struct stat status;
    size_t done = 0;
    object->data = NULL;
    int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (file >= 0 && fstat(file, &status) == 0 && S_ISREG(status.st_mode)) {
        object->size = (size_t)status.st_size;
        object->mode = status.st_mode & 07777;
        object->data = malloc(object->size + 1);
        while (object->data != NULL && done < object->size) {
            ssize_t got = read(file, object->data + done, object->size - done);
            if (got < 0 && errno == EINTR)
                continue;
            if (got <= 0)
                break;
            done += (size_t)got;
        }
    }
    if (file >= 0)
        close(file);
    if (object->data != NULL && done == object->size)
        return 0;
    free(object->data);
    object->data = NULL;
    return -1;
}

/* Write an object to a file that was opened, and close it. Return 0, or -1 and errno. */
static int write_data(int file, const struct object *object)
{
    size_t done = 0;
    if (file < 0)
        return -1;
    while (done < object->size) {
        ssize_t sent = write(file, object->data + done, object->size - done);
        if (sent < 0 && errno != EINTR) {
            int error = errno;
            close(file);
            errno = error;
            return -1;
        }
        done += sent > 0 ? (size_t)sent : 0;
    }
    return close(file);
}

/* Put an object in its place; it gets its name when it is whole. Where no file can be made or renamed beside it (its
   name is long, or the folder is not writable), it is written into the file that is there, as clang does. Return 0, or
   -1 and errno. */
static int write_object(const char *path, const struct object *object)
{
    size_t size = strlen(path) + 32;
    char *name = malloc(size);
    int error = 0;
    if (name == NULL)
        return -1;
    snprintf(name, size, "%s.%ld.mlgo-tmp", path, (long)getpid());
    int file = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, object->mode);
    if (file < 0) {
        error = errno == ENOSPC || errno == EDQUOT ? errno : 0;
    } else if (write_data(file, object) < 0) {
        error = errno;
        unlink(name);
    } else if (chmod(name, object->mode) == 0 && rename(name, path) == 0) {
        free(name);
        return 0;
    } else {
        unlink(name);
    }
    free(name);
    if (error == 0)
        return write_data(open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, object->mode), object);
    errno = error;
    return -1;
}

static void compile_both_ways(struct host *host)
{
    char **live;
    const char *problem;
    struct object plain, small;
    int quiet = open("/dev/null", O_WRONLY | O_CLOEXEC);
    int status = run(host, command(host->count, host->words, NULL), NULL, -1, -1, &problem);
    if (problem != NULL || status != 0 || asked_to_end || read_object(host->line->output, &plain) < 0
        || elf_text(plain.data, plain.size) < 0) {
        report(host, ENDED, problem != NULL ? 1 << 8 : status, "");
        return;
    }
    if (open_channel(host, &live) < 0)
        return;
    int tried = run(host, live, &host->session, quiet, quiet, &problem);
    if (problem == NULL && tried == 0 && read_object(host->line->output, &small) == 0) {
        long long text = elf_text(small.data, small.size);
        if (text >= 0 && text < elf_text(plain.data, plain.size)) {
            report(host, ENDED, status, "");
            return;
        }
    } else if (problem != NULL) {
        say("%s; compiled without it", problem);
    } else if (!asked_to_end) {
        say("the compile with it %s; compiled without it", outcome(tried));
    }
    if (write_object(host->line->output, &plain) < 0) {
        say("%s: cannot be written: %s", host->line->output, strerror(errno));
        unlink(host->line->output);
        status = 1 << 8;
    }
    report(host, ENDED, asked_to_end ? tried : status, "");
}

static void host_compile(struct host *host)
{
    setpgid(0, 0); /* not a session: the scheduler would count each compile as much as a whole terminal */
#ifdef __linux__
    prctl(PR_SET_CHILD_SUBREAPER, 1);
#endif
    begin_anywhere();
    catch_signal(SIGCHLD);
    catch_signal(SIGPIPE);
    unblock_signals();
    if (KEEP_SMALLER)
        compile_both_ways(host);
    else
        compile_by_policy(host);
    leave(host);
}

/* --- the wrapper */

static void end_by(int number)
{
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none); /* the compiler has left its own */
    signal(number, SIG_DFL);
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number);
    sigprocmask(SIG_UNBLOCK, &one, NULL);
    kill(getpid(), number);
    _exit(128 + number);
}

/* Open what is closed of the standard streams, as clang does: else the first files to be opened would stand for them. */
static void open_standard(void)
{
    for (int i = 0; i < 3; i++)
        if (fcntl(i, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDWR) < 0)
            return;
}

/* Let the host compile. Return why it could not; if it could, this process ends as the compiler did. */
static const char *compile_with_host(struct host *host)
{
    static struct report got;
    static char reason[sizeof got.text], folder[sizeof got.text];
    int life[2], reports[2], status = -1, group = 0;
    if (make_pipe(life) < 0 || make_pipe(reports) < 0 || make_pipe(wake) < 0
        || fcntl(wake[0], F_SETFL, O_NONBLOCK) < 0 || fcntl(wake[1], F_SETFL, O_NONBLOCK) < 0)
        return strerror(errno);
    sigprocmask(SIG_SETMASK, NULL, &inherited);
    own = inherited;
    sigdelset(&own, SIGCHLD);
    block_signals();
    for (int i = 0; i < FORWARDED_COUNT; i++)
        catch_signal(FORWARDED[i]);
    pid_t child = fork();
    if (child == 0) {
        close(life[1]);
        close(reports[0]);
        host->life = life[0];
        host->reports = reports[1];
        host_compile(host);
    }
    target = child > 0 ? child : 0;
    close(reports[1]);
    unblock_signals();
    if (child < 0)
        return strerror(errno);
    for (;;) {
        ssize_t size = read(reports[0], &got, sizeof got);
        if (size < 0 && errno == EINTR)
            continue;
        if (size != (ssize_t)sizeof got)
            break;
        if (got.kind == STARTED)
            group = got.value;
        else if (got.kind == ENDED)
            status = got.value;
        else
            memcpy(got.kind == FOLDER ? folder : reason, got.text, sizeof got.text);
    }
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    target = 0;
    if (status >= 0) {
        if (WIFSIGNALED(status))
            end_by(WTERMSIG(status));
        exit(WEXITSTATUS(status));
    }
    if (reason[0] == '\0') { /* the host was killed, perhaps by the policy's own mistake */
        if (group > 0)
            end_group(group, TOLD_TO_END);
        if (folder[0] != '\0')
            remove_channel(folder);
        strcpy(reason, "the process that asks it has died");
    }
    if (asked_to_end)
        end_by(asked_to_end);
    restore_signals();
    return reason;
}

/* Tell whether the clang is another one than was wrapped, by its file. */
static int was_updated(void)
{
    struct stat now;
    return stat(C_DRIVER[0], &now) == 0 && (now.st_size != CLANG_BYTES || now.st_mtime != CLANG_CHANGED);
}

int main(int count, char **words)
{
    struct line line;
    struct host host;
    if (count < 1)
        return 127;
    read_line(&line, is_cxx(base_name(words[0])), count - 1, words + 1);
    if (line.is_broken)
        say("its decisions, %s, cannot be read; compiled without it", FOUND);
    if (!line.asks || line.is_broken || (KEEP_SMALLER && !line.one_object) || is_other(base_name(words[0])))
        return become(words[0], command(count, words, NULL));
    open_standard();
    memset(&host, 0, sizeof host);
    host.line = &line;
    host.count = count;
    host.words = words;
    host.stdin_copy = host.stdout_copy = -1;
    const char *problem = NULL;
    if ((line.writes_stdout && (host.stdout_copy = nameless_file()) < 0)
        || (line.reads_stdin && (host.stdin_copy = nameless_file()) < 0)) {
        problem = strerror(errno);
    } else if (line.reads_stdin && copy_all(0, host.stdin_copy) < 0) {
        /* A part of it may have been read, which no compile can read again. */
        say("standard input cannot be copied: %s", strerror(errno));
        return 1;
    }
    /* Its version says where LLVM's own decision is told. */
    if (problem == NULL && (SENDS_DEFAULT || line.by_default) && was_updated())
        problem = "the clang that is wrapped was updated, wrap it again (mlgo-corpus toolchain wrap)";
    if (problem == NULL)
        problem = compile_with_host(&host);
    say("%s; compiled without it", problem);
    if (host.stdin_copy >= 0) {
        lseek(host.stdin_copy, 0, SEEK_SET);
        dup2(host.stdin_copy, 0);
    }
    return become(words[0], command(count, words, NULL));
}

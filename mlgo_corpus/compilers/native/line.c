/* What a driver's line asks for. Where that is not certain, nothing is asked, and the line is passed on as it is. */

#include "native.h"
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Limits of response files: more is passed on without being understood. */
enum { MOST_RESPONSE_BYTES = 4 << 20, MOST_RESPONSE_FILES = 64 };

/* The words that are looked at one after the other, and what has been seen. */
struct scan {
    struct line *line;
    const char *skip;    /* the option whose value is the next word */
    char *output;
    char *source;
    int plain;           /* nothing must be asked */
    int sized;           /* the last -O is one that asks */
    int optimised;       /* and is not -O0 */
    int is_cxx;          /* C is compiled as C++ */
    int code;            /* sources that are compiled */
    int others;          /* those of them in whose language the policy does not decide */
    int inputs;          /* sources and others */
    int architectures;
    int objects_only;    /* -c */
    int assembly_only;   /* -S */
    int apart;           /* something is made that belongs to the object */
    int lto;
    int is_msvc;         /* the target's debug information holds the command */
    int debug;           /* there is debug information */
    int only_inputs;     /* behind -- */
    enum { BY_NAME, CODE, NOT_CODE } language;
    int is_decided;      /* the policy decides in the language given */
    int files;           /* response files */
    size_t bytes;
};

static int starts(const char *word, const char *with)
{
    return strncmp(word, with, strlen(with)) == 0;
}

static int is_one_of(const char *word, const char *const *words)
{
    for (; *words != NULL; words++)
        if (strcmp(word, *words) == 0)
            return 1;
    return 0;
}

static int starts_with_one_of(const char *word, const char *const *words)
{
    for (; *words != NULL; words++)
        if (starts(word, *words))
            return 1;
    return 0;
}

/* Lines with these are questions, make no code, or make code for another device; or write down their own command, in
   the object or beside it, which would name a channel that is gone. */
static const char *const PLAIN[] = {
    "-E", "-M", "-MM", "-###", "-fsyntax-only", "--syntax-only", "--analyze", "--precompile", "-emit-ast",
    "-verify-pch", "-extract-api", "--preprocess", "--dependencies", "--user-dependencies", "-cc1", "-cc1as",
    "-cc1gen-reproducer", "--version", "--help", "-help", "-dumpversion", "-dumpmachine", "-ffat-lto-objects",
    "-grecord-command-line", "-grecord-gcc-switches", "-frecord-command-line", "-frecord-gcc-switches",
    "-gen-cdb-fragment-path", NULL,
};
static const char *const PLAIN_BEGINNINGS[] = {
    "-print-", "--print-", "--help-", "--offload", "-fopenmp-targets", "--cuda", "--hip", "-fembed-bitcode", "-MJ", "-gcodeview",
    "--driver-mode=cl", "--driver-mode=cpp", "--driver-mode=flang", "--driver-mode=dxc", "--autocomplete", NULL,
};
static const char *const APART[] = {
    "-gsplit-dwarf", "-emit-llvm", "-save-temps", "--save-temps", "-fstack-usage", "-fsave-optimization-record",
    "-foptimization-record-", "-ftime-trace", NULL,
};
static const char *const CODE_ENDINGS[] = {
    "c", "i", "m", "C", "M", "cc", "cp", "cxx", "cpp", "c++", "CC", "CPP", "CXX", "C++", "ii", "mi", "mm", "mii",
    "ll", "bc", "cppm", "ccm", "cxxm", "c++m", "iim", "pcm", "ixx", NULL,
};
static const char *const DEVICE_ENDINGS[] = {"cu", "cui", "hip", "hipi", "cl", "clcpp", "rs", "hlsl", NULL};
static const char *const CODE_LANGUAGES[] = {
    "c", "c++", "objective-c", "objective-c++", "cpp-output", "c++-cpp-output", "objective-c-cpp-output",
    "objective-c++-cpp-output", "c++-module", "ir", NULL,
};
static const char *const DEVICE_LANGUAGES[] = {"cuda", "cuda-cpp-output", "hip", "hip-cpp-output", "cl", "clcpp",
                                               "renderscript", "hlsl", NULL};

static void set_language(struct scan *scan, const char *name)
{
    if (is_one_of(name, DEVICE_LANGUAGES))
        scan->plain = 1;
    scan->is_decided = is_one_of(name, DECIDED_LANGUAGES);
    scan->language = strcmp(name, "none") == 0 ? BY_NAME : is_one_of(name, CODE_LANGUAGES) ? CODE : NOT_CODE;
}

static void set_level(struct scan *scan, const char *level)
{
    int is_small = strcmp(level, "s") == 0 || strcmp(level, "z") == 0;
    scan->optimised = strcmp(level, "0") != 0;
    scan->sized = is_small || (ASK_ALWAYS && scan->optimised);
}

static int is_msvc(const char *target)
{
    return strstr(target, "windows") != NULL && strstr(target, "-gnu") == NULL && strstr(target, "-itanium") == NULL;
}

/* Tell whether what is there can be read twice, as a pipe cannot. */
static int is_whole_file(const char *name)
{
    struct stat found;
    return stat(name, &found) < 0 || S_ISREG(found.st_mode);
}

/* Tell whether an option's value is a file that can be read once only: `-include <(...)`. The null device is always
   empty. */
static int is_read_once(const char *value)
{
    struct stat found;
    return stat(value, &found) == 0 && !S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode)
           && strcmp(value, "/dev/null") != 0;
}

/* Return the value that is in the same word as its option, or an empty text. */
static const char *joined_value(const char *word)
{
    const char *equals = strchr(word, '=');
    if (starts(word, "-include") || starts(word, "-imacros"))
        return word + 8;
    return equals != NULL ? equals + 1 : "";
}

static void add_input(struct scan *scan, char *name)
{
    const char *slash = strrchr(name, '/'), *dot = strrchr(slash != NULL ? slash : name, '.');
    const char *ending = dot != NULL ? dot + 1 : "";
    int is_c = strcmp(ending, "c") == 0 || strcmp(ending, "i") == 0;
    int is_decided = is_one_of(scan->is_cxx && is_c ? "cc" : ending, DECIDED_ENDINGS);
    scan->inputs++;
    if (strcmp(name, "-") == 0)
        scan->line->reads_stdin = 1;
    else if (!is_whole_file(name))
        scan->plain = 1;
    if (scan->language == BY_NAME && is_one_of(ending, DEVICE_ENDINGS))
        scan->plain = 1;
    if (scan->language == CODE || (scan->language == BY_NAME && is_one_of(ending, CODE_ENDINGS))) {
        scan->code++;
        scan->others += !DECIDES_IN_ALL && !(scan->language == CODE ? scan->is_decided : is_decided);
        scan->source = name;
    }
}

/* Read an option of LLVM's, which may begin with two dashes. The user's own of the advisor stay alone: LLVM does not take
   them twice. */
static void read_llvm_option(struct scan *scan, const char *word)
{
    word += starts(word, "--");
    if (starts_with_one_of(word, OWN_OPTIONS))
        scan->plain = 1;
    else if (starts(word, GROWTH_OPTION))
        scan->line->has_growth = 1;
}

static void read_option(struct scan *scan, char *word)
{
    static const char *const beginnings[] = {"-Xopenmp-target", "-Xarch_", NULL};
    if (is_one_of(word, PLAIN) || starts_with_one_of(word, PLAIN_BEGINNINGS))
        scan->plain = 1;
    else if (starts_with_one_of(word, APART))
        scan->apart = 1;
    else if (strcmp(word, "-c") == 0 || strcmp(word, "--compile") == 0)
        scan->objects_only = 1;
    else if (strcmp(word, "-S") == 0 || strcmp(word, "--assemble") == 0)
        scan->assembly_only = 1;
    else if (strcmp(word, "-ObjC") == 0 || strcmp(word, "-ObjC++") == 0)
        set_language(scan, word[5] == '\0' ? "objective-c" : "objective-c++");
    else if (starts(word, "-O"))
        set_level(scan, word[2] != '\0' ? word + 2 : "1");
    else if (starts(word, "--optimize"))
        set_level(scan, word[10] == '=' ? word + 11 : "1");
    else if (strcmp(word, "-fno-lto") == 0)
        scan->lto = 0;
    else if (strcmp(word, "-flto") == 0 || starts(word, "-flto="))
        scan->lto = 1;
    else if (starts(word, "--output="))
        scan->output = word + 9;
    else if (starts(word, "-o") && word[2] != '\0' && !starts(word, "-object") && !starts(word, "-objcmt"))
        scan->output = word + 2;
    else if (starts(word, "-mllvm="))
        read_llvm_option(scan, word + 7);
    else if (starts(word, "--language="))
        set_language(scan, word + 11);
    else if (starts(word, "-x") && word[2] != '\0')
        set_language(scan, word + 2);
    else if (is_read_once(joined_value(word)))
        scan->plain = 1;
    if (starts(word, "--target="))
        scan->is_msvc = is_msvc(word + 9);
    else if (starts(word, "-g") && strcmp(word, "-g0") != 0)
        scan->debug = 1;
    if (is_one_of(word, TAKES_NEXT) || starts_with_one_of(word, beginnings))
        scan->skip = word;
}

static void read_value(struct scan *scan, const char *option, char *word)
{
    if (strcmp(option, "-o") == 0 || strcmp(option, "--output") == 0)
        scan->output = word;
    else if (strcmp(option, "-x") == 0 || strcmp(option, "--language") == 0)
        set_language(scan, word);
    else if (strcmp(option, "-arch") == 0)
        scan->architectures++;
    else if (strcmp(option, "-target") == 0)
        scan->is_msvc = is_msvc(word);
    else if (strcmp(option, "-mllvm") == 0)
        read_llvm_option(scan, word);
    else if (is_read_once(word) || (strcmp(option, "-Xclang") == 0 && starts(word, "-fembed-bitcode")))
        scan->plain = 1;
    else if (strcmp(option, "-Xclang") == 0)
        read_llvm_option(scan, word); /* behind an -mllvm of its own */
}

static void read_response_file(struct scan *scan, const char *path);

static void read_word(struct scan *scan, char *word)
{
    if (scan->skip != NULL) {
        const char *option = scan->skip;
        scan->skip = NULL;
        read_value(scan, option, word);
    } else if (word[0] == '@' && word[1] != '\0') {
        read_response_file(scan, word + 1);
    } else if (scan->only_inputs || word[0] != '-' || word[1] == '\0') {
        add_input(scan, word);
    } else if (strcmp(word, "--") == 0) {
        scan->only_inputs = 1;
    } else {
        read_option(scan, word);
    }
}

/* Take the next word as GNU's rules have it: blanks end it, quotes keep them, a backslash keeps any character. */
static char *next_word(char **at)
{
    char *from = *at, *word, *to, quote = '\0';
    while (*from != '\0' && strchr(" \t\r\n", *from) != NULL)
        from++;
    if (*from == '\0')
        return NULL;
    for (word = to = from; *from != '\0'; from++) {
        if (*from == '\\' && from[1] != '\0') /* also between single quotes, unlike in a shell */
            *to++ = *++from;
        else if (quote != '\0' ? *from == quote : *from == '"' || *from == '\'')
            quote = quote != '\0' ? '\0' : *from;
        else if (quote == '\0' && strchr(" \t\r\n", *from) != NULL)
            break;
        else
            *to++ = *from;
    }
    *at = *from != '\0' ? from + 1 : from;
    *to = '\0';
    return word;
}

static void read_response_file(struct scan *scan, const char *path)
{
    FILE *file = scan->files++ < MOST_RESPONSE_FILES && is_whole_file(path) ? fopen(path, "rb") : NULL;
    char *data = file != NULL ? malloc(MOST_RESPONSE_BYTES + 1) : NULL;
    size_t size = data != NULL ? fread(data, 1, MOST_RESPONSE_BYTES + 1, file) : 0;
    if (file != NULL)
        fclose(file);
    /* It cannot be read, which clang will say; or it is too large. What is in it is never freed: words point to it. */
    if (data == NULL || (scan->bytes += size) > MOST_RESPONSE_BYTES) {
        scan->plain = 1;
        free(data);
        return;
    }
    data[size] = '\0';
    for (char *word; !scan->plain && (word = next_word(&data)) != NULL;)
        read_word(scan, word);
}

/* Name the object that clang makes of a source without -o. */
static char *default_output(const char *source)
{
    const char *slash = strrchr(source, '/'), *name = slash != NULL ? slash + 1 : source, *dot = strrchr(name, '.');
    size_t stem = dot != NULL ? (size_t)(dot - name) : strlen(name);
    char *output = malloc(stem + 3);
    if (output != NULL) {
        memcpy(output, name, stem);
        memcpy(output + stem, ".o", 3);
    }
    return output;
}

void read_line(struct line *line, int is_cxx, int count, char **words)
{
    struct scan scan;
    memset(line, 0, sizeof *line);
    memset(&scan, 0, sizeof scan);
    scan.line = line;
    scan.is_cxx = is_cxx;
    for (int i = 0; i < count && !scan.plain; i++)
        read_word(&scan, words[i]);
    int may_ask = !scan.plain && !(scan.is_msvc && scan.debug) && scan.optimised && scan.code > 0 && !scan.lto;
    int is_policys = scan.sized && scan.others == 0;
    line->writes_stdout = scan.output != NULL && strcmp(scan.output, "-") == 0;
    int is_object = scan.objects_only && !scan.assembly_only && scan.inputs == 1 && scan.architectures < 2
                    && !line->writes_stdout;
    line->one_object = is_object && !scan.apart;
    if (may_ask && is_object)
        line->output = scan.output != NULL ? scan.output : default_output(scan.source);
    line->is_broken = may_ask && find_decisions(line->output, &line->found) < 0;
    line->asks = may_ask && (is_policys || line->found.count > 0);
    line->by_default = line->asks && !is_policys;
}

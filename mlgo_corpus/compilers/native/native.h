/* What the files of the wrapped clang share; wrap.c says what it does. C99 and POSIX; Linux has some more. */

#ifndef MLGO_NATIVE_H
#define MLGO_NATIVE_H

#include <stddef.h>
#include <stdint.h>

/* --- found.c: the decisions of a dataset, by module and by key */

struct asked {           /* how often each key was asked about in a compile: a table of hashes */
    uint64_t *hashes, *counts;
    size_t slots, used;
};

struct decisions {
    const uint64_t *keys; /* sorted; the lowest bit is the decision */
    uint64_t count;      /* 0 if the module is not known */
    struct asked asked;
};

struct span {            /* of a feature in an observation */
    size_t offset, bytes;
};

/* Find the decisions of the module whose object has this path, or of none if it is NULL. Return 0, or -1 if the file of
   decisions cannot be read. */
int find_decisions(const char *output, struct decisions *found);

/* Begin a compile. */
void begin_asking(struct decisions *found);

/* Return the decision about the next question, or NOT_FOUND. */
enum { NOT_FOUND = -1 };
int found_decision(struct decisions *found, const char *tensors, const struct span *spans, size_t count);

/* --- wrap.c */

/* Open a file that is in the folder above the program's own, for reading, without waiting for a FIFO's other end.
   Return its descriptor, or -1. */
int open_beside(const char *name);

/* --- line.c: what a driver's line asks for */

struct line {
    int asks;            /* the policy decides in this compile, or a dataset's decisions do */
    int one_object;      /* it makes one object, and nothing that belongs to that object alone */
    int reads_stdin;     /* the source is standard input */
    int writes_stdout;   /* the output is standard output */
    int has_growth;      /* the line has a limit of growth of its own */
    int by_default;      /* LLVM's own decision is asked for, and decides what no dataset's does: the policy would not be asked */
    int is_broken;       /* the decisions cannot be read */
    char *output;        /* the object's path, if there is one object */
    struct decisions found;
};

/* Read a driver's line, without the program; by its name it is a compiler of C++ or not. */
void read_line(struct line *line, int is_cxx, int count, char **words);

/* --- session.c: the compiler's side of a live session asks, the policy answers */

struct session {
    int in;              /* the FIFO that the compiler reads */
    int out;             /* the FIFO that the compiler writes */
    long headers, decisions;
    const char *problem; /* why it cannot go on; null if it can */
    char *data;          /* bytes that were read: those from start to end are not used yet */
    size_t start, end, capacity;
    size_t tensors;      /* bytes of an observation; 0 before the first header */
    size_t *offsets;     /* of each of the policy's features in an observation */
    const void **features;
    int awaits_tensors;
    size_t wrong, right; /* where the default's decision is, and where it should be; equal if it is there */
    struct decisions *found; /* the module's; null if there are none */
    struct span *spans;  /* of the features that their keys are made of */
    int by_default;      /* see `struct line` */
    size_t default_at;   /* where the default's decision is after all; -1 if it is not sent */
};

/* Begin with two descriptors that do not block. Return 0, or -1 if there is no memory. */
int begin_session(struct session *session, struct line *line, int in, int out);

/* Read what there is to read, and answer. Return 0, or -1 with a problem. */
int answer_session(struct session *session);

/* --- elf.c */

/* Return Berkeley text of an ELF object as llvm-size prints it; -1 if the bytes are not a sound ELF object. */
long long elf_text(const unsigned char *data, size_t size);

#endif

/* What the files of the wrapped clang share; wrap.c says what it does. C99 and POSIX; Linux has some more. */

#ifndef MLGO_NATIVE_H
#define MLGO_NATIVE_H

#include <stddef.h>

/* --- line.c: what a driver's line asks for */

struct line {
    int asks;            /* the policy decides in this compile */
    int one_object;      /* it makes one object, and nothing that belongs to that object alone */
    int reads_stdin;     /* the source is standard input */
    int writes_stdout;   /* the output is standard output */
    int has_growth;      /* the line has a limit of growth of its own */
    char *output;        /* the object's path, if there is one object */
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
};

/* Begin with two descriptors that do not block. Return 0, or -1 if there is no memory. */
int begin_session(struct session *session, int in, int out);

/* Read what there is to read, and answer. Return 0, or -1 with a problem. */
int answer_session(struct session *session);

/* --- elf.c */

/* Return Berkeley text of an ELF object as llvm-size prints it; -1 if the bytes are not a sound ELF object. */
long long elf_text(const unsigned char *data, size_t size);

#endif

/* The host's side of a live session with LLVM's InteractiveModelRunner, answered by the policy that is linked in.

   mlgo_corpus/compilers/session.py describes the protocol. Nothing that comes from the compiler is believed: numbers
   are checked, and what has no end is refused. */

#include "native.h"
#include "policy.h"
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 1 << 16, MOST_HEADER = 1 << 20, MOST_LINE = 16 << 20, MOST_TENSORS = 16 << 20, DEPTH = 16, NAME = 128 };

/* The names of the features that a dataset's keys are made of end with a null. */
#define KEY_COUNT (sizeof KEY_FEATURES / sizeof *KEY_FEATURES - 1)
#define NONE ((size_t)-1)
#define LACKS "it needs the feature '%s', which this compiler does not send"

static char problem_text[400];

static int fail(struct session *session, const char *what, const char *name)
{
    snprintf(problem_text, sizeof problem_text, what, name);
    session->problem = problem_text;
    return -1;
}

/* --- JSON, as far as a header needs it */

struct text {
    const char *at, *end;
};

static int peek(struct text *text)
{
    while (text->at < text->end && strchr(" \t\r\n", *text->at) != NULL && *text->at != '\0')
        text->at++;
    return text->at < text->end ? (unsigned char)*text->at : -1;
}

static int take(struct text *text, int wanted)
{
    if (peek(text) != wanted)
        return 0;
    text->at++;
    return 1;
}

/* Read a string; a name with escapes is none of LLVM's, and what is longer than `size` is cut. */
static int take_string(struct text *text, char *name, size_t size)
{
    size_t length = 0;
    if (!take(text, '"'))
        return 0;
    while (text->at < text->end && *text->at != '"') {
        if (*text->at == '\\' && ++text->at == text->end)
            return 0;
        if (length + 1 < size)
            name[length++] = *text->at;
        text->at++;
    }
    if (size > 0)
        name[length] = '\0';
    return take(text, '"');
}

static int take_count(struct text *text, long long *value)
{
    int next = peek(text);
    if (next < '0' || next > '9')
        return 0;
    for (*value = 0; text->at < text->end && *text->at >= '0' && *text->at <= '9'; text->at++)
        if ((*value = *value * 10 + (*text->at - '0')) > MOST_TENSORS)
            return 0;
    return 1;
}

static int skip(struct text *text, int depth)
{
    int next = peek(text);
    if (depth == 0)
        return 0;
    if (next == '"')
        return take_string(text, NULL, 0);
    if (next == '{' || next == '[') {
        int close = next == '{' ? '}' : ']';
        text->at++;
        if (take(text, close))
            return 1;
        do {
            if (next == '{' && (!take_string(text, NULL, 0) || !take(text, ':')))
                return 0;
            if (!skip(text, depth - 1))
                return 0;
        } while (take(text, ','));
        return take(text, close);
    }
    const char *begin = text->at;
    while (text->at < text->end && strchr("+-.0123456789Eaeflnrstu", *text->at) != NULL && *text->at != '\0')
        text->at++;
    return text->at > begin;
}

/* --- a header */

struct spec {
    char name[NAME], type[16];
    long long elements;
};

static size_t type_bytes(const char *type)
{
    static const char *const names[] = {"int8_t", "uint8_t", "int16_t", "uint16_t", "int32_t",
                                        "uint32_t", "float", "int64_t", "uint64_t", "double"};
    static const size_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 8, 8, 8};
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
        if (strcmp(type, names[i]) == 0)
            return bytes[i];
    return 0;
}

static int take_spec(struct text *text, struct spec *spec)
{
    char key[NAME];
    spec->name[0] = spec->type[0] = '\0';
    spec->elements = 1;
    if (!take(text, '{'))
        return 0;
    do {
        if (!take_string(text, key, sizeof key) || !take(text, ':'))
            return 0;
        if (strcmp(key, "name") == 0) {
            if (!take_string(text, spec->name, sizeof spec->name))
                return 0;
        } else if (strcmp(key, "type") == 0) {
            if (!take_string(text, spec->type, sizeof spec->type))
                return 0;
        } else if (strcmp(key, "shape") == 0) {
            if (!take(text, '['))
                return 0;
            do {
                long long size;
                if (!take_count(text, &size))
                    return 0;
                if ((spec->elements *= size) > MOST_TENSORS)
                    return 0;
            } while (take(text, ','));
            if (!take(text, ']'))
                return 0;
        } else if (!skip(text, DEPTH)) {
            return 0;
        }
    } while (take(text, ','));
    return take(text, '}') && type_bytes(spec->type) > 0;
}

static int fits(struct session *session, const struct spec *spec, const char *type, long long elements)
{
    if (strcmp(spec->type, type) == 0 && spec->elements == elements)
        return 1;
    fail(session, "the compiler sends '%s' in another type or shape than the policy needs", spec->name);
    return 0;
}

static int take_features(struct session *session, struct text *text, int count)
{
    struct spec spec;
    size_t offset = 0, wrong = 0, right = 0;
    int has_wrong = 0, has_right = 0;
    if (!take(text, '['))
        return 0;
    if (take(text, ']'))
        return 1;
    do {
        if (!take_spec(text, &spec))
            return 0;
        for (int i = 0; i < count; i++)
            if (strcmp(spec.name, mlgo_policy_feature_name(i)) == 0) {
                if (!fits(session, &spec, mlgo_policy_feature_type(i), mlgo_policy_feature_size(i)))
                    return 0;
                session->offsets[i] = offset;
            }
        for (size_t i = 0; i < KEY_COUNT; i++)
            if (strcmp(spec.name, KEY_FEATURES[i]) == 0)
                session->spans[i] = (struct span){offset, (size_t)spec.elements * type_bytes(spec.type)};
        if (strcmp(spec.name, "callee_basic_block_count") == 0 && strcmp(spec.type, "int64_t") == 0)
            wrong = offset, has_wrong = spec.elements == 1;
        if (strcmp(spec.name, "inlining_default") == 0 && strcmp(spec.type, "int64_t") == 0)
            right = offset, has_right = spec.elements == 1;
        offset += (size_t)spec.elements * type_bytes(spec.type);
        if (offset > MOST_TENSORS)
            return 0;
    } while (take(text, ','));
    session->tensors = offset;
    session->default_at = has_right ? right : NONE;
    session->wrong = session->right = 0;
    if (MISPLACED_DEFAULT && has_wrong && has_right) {
        session->wrong = wrong;
        session->right = right;
    }
    return take(text, ']');
}

static int read_header(struct session *session, struct text text)
{
    int count = mlgo_policy_feature_count(), has_advice = 0;
    char key[NAME];
    struct spec advice;
    for (int i = 0; i < count; i++)
        session->offsets[i] = NONE;
    for (size_t i = 0; i < KEY_COUNT; i++)
        session->spans[i].offset = NONE;
    int sound = take(&text, '{');
    if (sound)
        do {
            sound = take_string(&text, key, sizeof key) && take(&text, ':');
            if (sound && strcmp(key, "features") == 0)
                sound = take_features(session, &text, count);
            else if (sound && strcmp(key, "advice") == 0)
                sound = has_advice = take_spec(&text, &advice);
            else
                sound = sound && skip(&text, DEPTH);
        } while (sound && take(&text, ','));
    session->headers++;
    if (session->problem != NULL)
        return -1;
    if (!sound || !has_advice || !take(&text, '}'))
        return fail(session, "the compiler sent a header that cannot be read%s", "");
    if (!fits(session, &advice, mlgo_policy_decision_type(), 1))
        return -1;
    for (int i = 0; i < count; i++)
        if (session->offsets[i] == NONE)
            return fail(session, LACKS, mlgo_policy_feature_name(i));
    if (session->by_default && session->default_at == NONE)
        return fail(session, LACKS, "inlining_default");
    if (session->found != NULL) {
        for (size_t i = 0; i < KEY_COUNT; i++)
            if (session->spans[i].offset == NONE)
                return fail(session, LACKS, KEY_FEATURES[i]);
        begin_asking(session->found);
    }
    return 0;
}

/* --- events */

static int decide(struct session *session, char *tensors)
{
    double room = 0; /* aligned, and as large as any decision */
    unsigned char decision[sizeof room];
    size_t bytes = type_bytes(mlgo_policy_decision_type());
    if (session->wrong != session->right) {
        memcpy(tensors + session->right, tensors + session->wrong, 8);
        memset(tensors + session->wrong, 0, 8);
    }
    int64_t found = session->found != NULL ? found_decision(session->found, tensors, session->spans, KEY_COUNT) : NOT_FOUND;
    if (found == NOT_FOUND && session->by_default)
        memcpy(&found, tensors + session->default_at, sizeof found);
    if (found == NOT_FOUND) {
        for (int i = 0, count = mlgo_policy_feature_count(); i < count; i++)
            session->features[i] = tensors + session->offsets[i];
        mlgo_policy_decide(session->features, &room);
    } else {
        memcpy(&room, &found, sizeof found);
    }
    memcpy(decision, &room, bytes);
    session->decisions++;
    ssize_t sent;
    do
        sent = write(session->in, decision, bytes);
    while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)bytes ? 0 : fail(session, "the compiler does not read the advice%s", "");
}

static int begins(const char *line, size_t length, const char *key)
{
    struct text text = {line, line + length};
    char name[NAME];
    return take(&text, '{') && take_string(&text, name, sizeof name) && strcmp(name, key) == 0;
}

static int read_event(struct session *session, const char *line, size_t length)
{
    static const char usual[] = "{\"observation\":";
    int is_usual = length >= sizeof usual - 1 && memcmp(line, usual, sizeof usual - 1) == 0;
    if (is_usual || begins(line, length, "observation")) {
        if (session->tensors == 0)
            return fail(session, "the compiler sent an observation before a header%s", "");
        session->awaits_tensors = 1;
        return 0;
    }
    if (begins(line, length, "context"))
        return 0;
    if (begins(line, length, "features") && length <= MOST_HEADER)
        return read_header(session, (struct text){line, line + length});
    return fail(session, "the compiler sent something else than observations%s", "");
}

/* Use what was read; what is incomplete stays. */
static int use(struct session *session)
{
    for (;;) {
        char *at = session->data + session->start;
        size_t left = session->end - session->start;
        if (session->awaits_tensors) {
            if (left < session->tensors + 1)
                return 0;
            if (at[session->tensors] != '\n')
                return fail(session, "the compiler sent an observation of another size%s", "");
            session->awaits_tensors = 0;
            session->start += session->tensors + 1;
            if (decide(session, at) < 0)
                return -1;
            continue;
        }
        char *newline = left ? memchr(at, '\n', left) : NULL;
        if (newline == NULL)
            return left > MOST_LINE ? fail(session, "the compiler sent a line without an end%s", "") : 0;
        session->start += (size_t)(newline - at) + 1;
        if (read_event(session, at, (size_t)(newline - at)) < 0)
            return -1;
    }
}

int begin_session(struct session *session, struct line *line, int in, int out)
{
    size_t count = (size_t)mlgo_policy_feature_count();
    memset(session, 0, sizeof *session);
    session->in = in;
    session->out = out;
    session->capacity = 2 * CHUNK;
    session->data = malloc(session->capacity);
    session->offsets = calloc(count + 1, sizeof *session->offsets);
    session->features = calloc(count + 1, sizeof *session->features);
    session->spans = calloc(KEY_COUNT + 1, sizeof *session->spans);
    session->found = line->found.count > 0 ? &line->found : NULL;
    session->by_default = line->by_default;
    int has_room = session->data != NULL && session->offsets != NULL && session->features != NULL && session->spans != NULL;
    return has_room ? 0 : -1;
}

int answer_session(struct session *session)
{
    if (session->start == session->end)
        session->start = session->end = 0;
    if (session->capacity - session->end < CHUNK) {
        memmove(session->data, session->data + session->start, session->end - session->start);
        session->end -= session->start;
        session->start = 0;
        if (session->capacity - session->end < CHUNK) {
            char *larger = realloc(session->data, 2 * session->capacity);
            if (larger == NULL)
                return fail(session, "there is no memory for what the compiler sent%s", "");
            session->data = larger;
            session->capacity *= 2;
        }
    }
    ssize_t got = read(session->out, session->data + session->end, session->capacity - session->end);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : fail(session, "its questions cannot be read: %s", strerror(errno));
    session->end += (size_t)got;
    return use(session);
}

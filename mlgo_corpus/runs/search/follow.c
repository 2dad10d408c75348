/* Answers a compiler's questions as a plan has them: what `Follower` in follow.py does, which compares the two.

   That takes microseconds here, and a hundred of them in Python between two turns of a compiler. Whatever is not the usual
   next question is left to Python: another header, a cut one, the end. */

#define _GNU_SOURCE
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* What decides where the plan does not. */
struct decider {
    void (*policy)(const void *const *, void *); /* a compiled policy; NULL if there is none */
    const int64_t *offsets;                      /* of its features */
    const void **features;                       /* room for pointers to them */
    int64_t count;                               /* of them */
    int64_t decision;                            /* where LLVM's own decision is; -1 if a rule decides */
    int64_t cost, users;                         /* where the rule's features are */
    int64_t most_users, few, many;               /* the rule */
    struct decider *among;                       /* of which a mixture draws one for each callee; NULL for no mixture */
    const int64_t *callee;                       /* where the features are that it draws by */
    int64_t ways, told;                          /* how many deciders, and such features */
    uint64_t seed;
};

struct follower {
    struct decider base, guide;
    int64_t guided;          /* whether the guide decides what is not planned */
    int64_t tensors;         /* bytes of a question */
    int64_t wrong, right;    /* where LLVM's own decision is, and where it should be; equal if it is there */
    int64_t words, height;   /* stable features; the one that all calls of a function have the same, -1 if none */
    const int64_t *places;   /* where the stable features are */
    uint64_t *asked;         /* room for them */
    int64_t planned;
    const uint64_t *rows;    /* the planned decisions' stable features */
    const int8_t *plan;      /* the planned decisions; -1 for what the guide or the base decides */
    int64_t window, behind;
    double share, unlike, height_counts, skipped, taken_for_new, never;
    double *worth, *best, *paired;
    int64_t known, first, next, sure; /* of `worth` */
    char *data;              /* room for what is read */
    int64_t size;
    char *kept;              /* the questions */
    int64_t *bases, *decided;
    int64_t capacity, count; /* of these */
    int64_t left, used;      /* of the last call: bytes in `data` that are not used, and bytes that were */
    int64_t unsent;          /* whether the last decision of it is still to be sent */
};

static int64_t number_at(const char *tensors, int64_t place)
{
    int64_t value;
    memcpy(&value, tensors + place, sizeof value);
    return value;
}

/* Return 64 bits that depend on all bits of a number: a step of the generator SplitMix64. */
static uint64_t scrambled(uint64_t number)
{
    number += 0x9E3779B97F4A7C15;
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9;
    number = (number ^ number >> 27) * 0x94D049BB133111EB;
    return number ^ number >> 31;
}

static int64_t decide_by(struct decider *decider, const char *tensors)
{
    if (decider->among != NULL) {
        uint64_t drawn = decider->seed;
        for (int64_t i = 0; i < decider->told; i++)
            drawn = scrambled(drawn ^ (uint64_t)number_at(tensors, decider->callee[i]));
        decider = decider->among + drawn % (uint64_t)decider->ways;
    }
    if (decider->policy != NULL) {
        int64_t decision = 0;
        for (int64_t i = 0; i < decider->count; i++)
            decider->features[i] = tensors + decider->offsets[i];
        decider->policy(decider->features, &decision);
        return decision != 0;
    }
    if (decider->decision >= 0)
        return number_at(tensors, decider->decision);
    int few = number_at(tensors, decider->users) <= decider->most_users;
    return number_at(tensors, decider->cost) < (few ? decider->few : decider->many);
}

/* Return which planned decision comes next, as Alignment.find in align.py does; -1 for a new one. */
static int64_t find(struct follower *one)
{
    const uint64_t *asked = one->asked;
    size_t bytes = (size_t)one->words * sizeof *asked;
    int64_t at = one->next, first = one->first, count = one->planned - first, place = 0;
    if (one->sure && at < one->planned && memcmp(one->rows + at * one->words, asked, bytes) == 0) {
        one->next = one->first = at + 1;
        one->worth[0] = 0.0;
        one->known = 1;
        return at;
    }
    if (count > one->window)
        count = one->window;
    if (count <= 0)
        return -1;
    double most = -1.0 / 0.0;
    for (int64_t i = 0; i <= count; i++) {
        double before = i < one->known ? one->worth[i] : one->never;
        one->best[i] = before - one->taken_for_new;
        if (i < count) {
            double reached = before + one->skipped * (double)i;
            most = reached > most ? reached : most;
            const uint64_t *row = one->rows + (first + i) * one->words;
            double equal = 0.0;
            for (int64_t word = 0; word < one->words; word++)
                equal += row[word] == asked[word];
            if (one->height >= 0 && row[one->height] == asked[one->height])
                equal += one->height_counts;
            one->paired[i] = most - one->skipped * (double)i + (equal * one->share - one->unlike);
        }
    }
    for (int64_t i = 1; i <= count; i++)
        if (one->paired[i - 1] > one->best[i])
            one->best[i] = one->paired[i - 1];
    for (int64_t i = 1; i <= count; i++)
        if (one->best[i] > one->best[place])
            place = i;
    int64_t answer = place > 0 && one->paired[place - 1] == one->best[place] ? first + place - 1 : -1;
    one->next = first + place;
    one->sure = answer >= 0 && memcmp(one->rows + answer * one->words, asked, bytes) == 0;
    int64_t behind = place > one->behind ? place - one->behind : 0;
    for (int64_t i = behind; i <= count; i++)
        one->worth[i - behind] = one->best[i] - one->best[place];
    one->known = count + 1 - behind;
    one->first = first + behind;
    return answer;
}

/* Return the decision about a question, and keep both; there must be room. */
int64_t follow_decide(struct follower *one, const char *question)
{
    char *tensors = one->kept + one->count * one->tensors;
    memcpy(tensors, question, (size_t)one->tensors);
    for (int64_t i = 0; i < one->words; i++)
        memcpy(one->asked + i, tensors + one->places[i], sizeof *one->asked);
    int64_t found = find(one), base = decide_by(&one->base, tensors);
    int64_t decision = found < 0 ? -1 : one->plan[found];
    if (decision < 0)
        decision = one->guided ? decide_by(&one->guide, tensors) : base;
    one->bases[one->count] = base;
    one->decided[one->count++] = decision;
    return decision;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Answer questions until something else comes, there is no room, or a time is over; return how many.

   questions, advice: the channel's descriptors, which never block.
   others: descriptors at which the caller has to look when they are ready; the first of `polled` is the questions'.
   number: that of the next question.
   separator: the text between the key and it.
   seconds: for how long at most. */
int64_t follow_answer(struct follower *one, int advice, struct pollfd *polled, int64_t others, int64_t number,
                      const char *separator, double seconds)
{
    char line[64];
    int64_t answered = 0, have = 0;
    double until = now() + seconds;
    one->used = one->left = one->unsent = 0;
    while (one->count < one->capacity) {
        int length = snprintf(line, sizeof line, "{\"observation\"%s%lld}\n", separator, (long long)(number + answered));
        int64_t wanted = length + one->tensors + 1;
        double left = until - now();
        int is_usual = left > 0 && poll(polled, (nfds_t)(1 + others), (int)(1000 * left) + 1) > 0;
        for (int64_t i = 1; i <= others; i++)
            is_usual = is_usual && polled[i].revents == 0;
        if (!is_usual)
            break;
        ssize_t got = read(polled[0].fd, one->data + have, (size_t)(one->size - have));
        if (got <= 0)
            break;
        have += got;
        if (have > wanted || memcmp(one->data, line, (size_t)(have < length ? have : length)) != 0)
            break;
        if (have < wanted)
            continue;
        if (one->data[wanted - 1] != '\n')
            break;
        char *tensors = one->data + length;
        if (one->wrong != one->right) {
            memcpy(tensors + one->right, tensors + one->wrong, sizeof(int64_t));
            memset(tensors + one->wrong, 0, sizeof(int64_t));
        }
        int64_t decision = follow_decide(one, tensors);
        one->unsent = write(advice, &decision, sizeof decision) != (ssize_t)sizeof decision;
        one->used += wanted;
        have = 0;
        answered++;
        if (one->unsent)
            break;
    }
    one->left = have;
    return answered;
}

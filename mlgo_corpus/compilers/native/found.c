/* The decisions of a dataset, by module and by key: what a search found, for the compiles that it knows.

   They are in a file beside the program, which `mlgo_corpus.policies.keyed` writes and describes. The program knows the
   file's digest, so that other decisions make another program: ccache knows a compiler by its file. A module is known
   by the end of its object's path, as the corpus names it. What is in the file is looked up, never trusted: a damaged
   one gives wrong decisions at worst. */

#include "native.h"
#include "config.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = 4096, HEADER_WORDS = 4, MODULE_WORDS = 3, WORD = sizeof(uint64_t), LEAST_SLOTS = 1024 };

/* --- the file */

/* Map the file, and return its words; NULL if it cannot be read or is cut off. */
static const uint64_t *map_table(void)
{
    struct stat status;
    int file = open_beside(FOUND);
    if (file < 0)
        return NULL;
    const uint64_t *words = MAP_FAILED;
    if (fstat(file, &status) == 0 && (uint64_t)status.st_size >= HEADER_WORDS * WORD)
        words = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (words == MAP_FAILED)
        return NULL;
    uint64_t room = (uint64_t)status.st_size / WORD - HEADER_WORDS;
    if (memcmp(words, FOUND_DIGEST, 2 * WORD) != 0 || words[2] > room / MODULE_WORDS
        || words[3] != room - MODULE_WORDS * words[2] || (uint64_t)status.st_size % WORD != 0)
        return NULL;
    return words;
}

/* Return the place of a number among sorted ones, `step` words apart; -1 if it is not there. */
static long long place_of(uint64_t wanted, const uint64_t *words, uint64_t count, size_t step, uint64_t mask)
{
    uint64_t low = 0, high = count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if ((words[middle * step] & mask) < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && (words[low * step] & mask) == wanted ? (long long)low : -1;
}

/* --- modules */

/* Write the absolute path of a file without ".", ".." and double slashes. Return 0, or -1 if it is too long. */
static int absolute_path(const char *name, char *path)
{
    char given[2 * PATH];
    size_t length = 0;
    given[0] = '\0';
    if (name[0] != '/' && getcwd(given, PATH) == NULL)
        return -1;
    if (strlen(name) >= PATH)
        return -1;
    strcat(strcat(given, "/"), name);
    for (char *at = given, *part; (part = strtok(at, "/")) != NULL; at = NULL) {
        if (strcmp(part, "..") == 0) {
            while (length > 0 && path[--length] != '/')
                ;
        } else if (strcmp(part, ".") != 0) {
            size_t size = strlen(part);
            if (length + size + 2 > PATH)
                return -1;
            path[length++] = '/';
            memcpy(path + length, part, size);
            length += size;
        }
    }
    path[length] = '\0';
    return 0;
}

/* FNV-1a. */
static uint64_t hash_of_name(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (; *name != '\0'; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3;
    return hash;
}

int find_decisions(const char *output, struct decisions *found)
{
    char path[PATH];
    memset(found, 0, sizeof *found);
    if (FOUND[0] == '\0')
        return 0;
    const uint64_t *words = map_table();
    if (words == NULL)
        return -1;
    if (output == NULL || absolute_path(output, path) < 0 || path[0] == '\0')
        return 0;
    const uint64_t *modules = words + HEADER_WORDS, *keys = modules + MODULE_WORDS * words[2];
    for (const char *slash = path; slash != NULL; slash = strchr(slash + 1, '/')) {
        long long place = place_of(hash_of_name(slash + 1), modules, words[2], MODULE_WORDS, ~(uint64_t)0);
        if (place < 0)
            continue;
        const uint64_t *module = modules + MODULE_WORDS * (uint64_t)place;
        if (module[1] > words[3] || module[2] > words[3] - module[1])
            return -1;
        found->keys = keys + module[1];
        found->count = module[2];
        return 0;
    }
    return 0;
}

/* --- keys */

static uint64_t stir(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15;
    return hash ^ hash >> 32;
}

static void forget(struct asked *asked)
{
    free(asked->hashes);
    free(asked->counts);
    memset(asked, 0, sizeof *asked);
}

static size_t slot_of(const struct asked *asked, uint64_t hash)
{
    size_t slot = (size_t)hash & (asked->slots - 1);
    while (asked->counts[slot] != 0 && asked->hashes[slot] != hash)
        slot = (slot + 1) & (asked->slots - 1);
    return slot;
}

static int make_room(struct asked *asked)
{
    struct asked larger = {NULL, NULL, asked->slots ? 2 * asked->slots : LEAST_SLOTS, asked->used};
    larger.hashes = calloc(larger.slots, sizeof *larger.hashes);
    larger.counts = calloc(larger.slots, sizeof *larger.counts);
    if (larger.hashes == NULL || larger.counts == NULL) {
        forget(&larger);
        return -1;
    }
    for (size_t i = 0; i < asked->slots; i++)
        if (asked->counts[i] != 0) {
            size_t slot = slot_of(&larger, asked->hashes[i]);
            larger.hashes[slot] = asked->hashes[i];
            larger.counts[slot] = asked->counts[i];
        }
    forget(asked);
    *asked = larger;
    return 0;
}

void begin_asking(struct decisions *found)
{
    forget(&found->asked);
}

int found_decision(struct decisions *found, const char *tensors, const struct span *spans, size_t count)
{
    struct asked *asked = &found->asked;
    uint64_t hash = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t done = 0; done < spans[i].bytes; done += WORD) {
            uint64_t word = 0;
            size_t left = spans[i].bytes - done;
            memcpy(&word, tensors + spans[i].offset + done, left < WORD ? left : WORD);
            hash = stir(hash, word);
        }
    if (2 * asked->used >= asked->slots && make_room(asked) < 0)
        return NOT_FOUND;
    size_t slot = slot_of(asked, hash);
    asked->used += asked->counts[slot] == 0;
    asked->hashes[slot] = hash;
    uint64_t key = stir(hash, asked->counts[slot]++);
    long long place = place_of(key & ~(uint64_t)1, found->keys, found->count, 1, ~(uint64_t)1);
    return place < 0 ? NOT_FOUND : (int)(found->keys[place] & 1);
}

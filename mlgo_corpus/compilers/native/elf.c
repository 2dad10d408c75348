/* The text of an ELF object: executable sections, and all others that are loaded and not written to. */

#include "native.h"

#include <stdint.h>
#include <string.h>

enum { ET_REL = 1, SHF_WRITE = 1, SHF_ALLOC = 2, SHF_EXECINSTR = 4 };

static uint64_t number(const unsigned char *at, int bytes, int big)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value = value << 8 | at[big ? i : bytes - 1 - i];
    return value;
}

long long elf_text(const unsigned char *data, size_t size)
{
    if (size < 52 || memcmp(data, "\177ELF", 4) != 0 || (data[4] != 1 && data[4] != 2) || (data[5] != 1 && data[5] != 2))
        return -1;
    int wide = data[4] == 2, big = data[5] == 2, word = wide ? 8 : 4;
    size_t header = wide ? 64 : 52, entry = wide ? 64 : 40;
    if (size < header || number(data + 16, 2, big) != ET_REL)
        return -1;
    uint64_t table = number(data + (wide ? 40 : 32), word, big);
    if (number(data + (wide ? 58 : 46), 2, big) != entry || table < header || table > size || size - table < entry)
        return -1;
    uint64_t count = number(data + (wide ? 60 : 48), 2, big);
    if (count == 0) /* more than fit into 16 bits: the number is in the first section header */
        count = number(data + table + (wide ? 32 : 20), word, big);
    if (count > (size - table) / entry)
        return -1;
    uint64_t text = 0;
    for (uint64_t i = 0; i < count; i++) {
        const unsigned char *section = data + table + i * entry;
        uint64_t flags = number(section + 8, word, big);
        uint64_t bytes = number(section + (wide ? 32 : 20), word, big);
        if ((flags & SHF_ALLOC) && ((flags & SHF_EXECINSTR) || !(flags & SHF_WRITE))) {
            if (bytes > INT64_MAX - text)
                return -1;
            text += bytes;
        }
    }
    return (long long)text;
}

// A library with an `operator new` and `operator delete` of its own, which do not use `malloc`.
#include <cstddef>
#include <new>

alignas(64) static char pool[1 << 16];
static std::size_t used;
long pool_deletes;

void *operator new(std::size_t size) {
    void *block = pool + used;
    used += (size + 63) / 64 * 64;
    return block;
}
void operator delete(void *block) noexcept { pool_deletes += block >= pool && block < pool + sizeof pool; }
void operator delete(void *block, std::size_t) noexcept { operator delete(block); }

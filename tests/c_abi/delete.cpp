// C++: `new` of libstdc++ over our `malloc`, and every form of our `operator delete`.
#include "check.h"
#include <new>
#include <string>
#include <thread>
#include <vector>

struct alignas(256) Wide { char bytes[300]; };
struct Base { virtual ~Base() {} long a = 1; };
struct Derived : Base { ~Derived() override {} long more[40] = {}; };

template <class T> static T *sound(T *block, size_t to) {
    CHECK(block && reinterpret_cast<uintptr_t>(block) % to == 0, "%p is not aligned to %zu", static_cast<void *>(block), to);
    return block;
}

static void every_form(size_t size) {
    const std::align_val_t align{128};
    operator delete(sound(operator new(size), 16));
    operator delete[](operator new[](size));
    operator delete(operator new(size), size);
    operator delete[](operator new[](size), size);
    operator delete(operator new(size, std::nothrow), std::nothrow);
    operator delete[](operator new[](size, std::nothrow), std::nothrow);
    operator delete(sound(operator new(size, align), 128), align);
    operator delete[](operator new[](size, align), align);
    operator delete(operator new(size, align), size, align);
    operator delete[](operator new[](size, align), size, align);
    operator delete(operator new(size, align, std::nothrow), align, std::nothrow);
    operator delete[](operator new[](size, align, std::nothrow), align, std::nothrow);
    operator delete(nullptr), operator delete(nullptr, size), operator delete[](nullptr, align);
}

static void work() {
    for (size_t size = 0; size < 300000; size = size * 2 + 1) every_form(size);
    for (int i = 0; i < 200; i++) {
        delete sound(new Wide, alignof(Wide));
        delete[] new Wide[3];
        delete static_cast<Base *>(new Derived);
        std::vector<std::string> words;
        for (int k = 0; k < 100; k++) words.emplace_back(k, 'x');
    }
}

int main() {
    std::thread other(work);
    work();
    other.join();
    volatile size_t most = PTRDIFF_MAX;
    bool thrown = false;
    try {
        operator delete(operator new(most));
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    CHECK(thrown, "new of PTRDIFF_MAX bytes did not throw bad_alloc");
    CHECK(operator new(most, std::nothrow) == nullptr, "nothrow new of PTRDIFF_MAX bytes");
    return 0;
}

// The exports as data; see table.cpp.
#pragma once
#include <vector>
namespace softgpu {
struct Entry {
    const char* base;
    const char* symbol;
    void* address;
    int version;
    bool per_thread;
};
const std::vector<Entry>& entries();
}  // namespace softgpu

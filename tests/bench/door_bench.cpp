// What the doors add to a launch, and to a look-up that is not theirs: the hook with a handler that submits at once,
// less the call without it, against a driver that only notes calls. One JSON object a line.
#include "tests/interpose/scripted.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

using namespace udnnmem::interpose;

namespace {

const Handlers handlers = [] {
    Handlers h{};
    h.work = [](const Work&, Submit submit) noexcept { return submit(); };
    return h;
}();

CUresult noted(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**, void**) {
    asm volatile("" ::: "memory");
    return CUDA_SUCCESS;
}

// Median over rounds of the time of one call, in ns.
template <class Call>
double time_of(Call call) {
    constexpr int calls = 20000, rounds = 51;
    std::vector<double> times;
    for (int r = 0; r < rounds; ++r) {
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < calls; ++i) call(i);
        times.push_back(std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / calls);
    }
    std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
    return times[rounds / 2];
}

void print(const char* name, double value, double goal) {
    std::printf("{\"name\": \"%s\", \"value\": %.1f, \"unit\": \"ns\", \"goal\": %.0f}\n", name, value, goal);
}

}  // namespace

int main() {
    SCRIPT(cuLaunchKernel, noted);
    SCRIPT(cuFuncGetParamInfo, [](CUfunction, std::size_t i, std::size_t* offset, std::size_t* size) {
        return *offset = i * 8, *size = 8, i < 8 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
    std::vector<CUfunction> functions;  // as many as a network has
    for (std::uintptr_t i = 1; i <= 256; ++i) functions.push_back(reinterpret_cast<CUfunction>(i * 0x240));
    void* params[8] = {};
    const auto hook = cuLaunchKernel;
    const auto launch = [&](auto f) {
        return time_of([&](int i) { f(functions[i & 255], 1, 1, 1, 32, 1, 1, 0, nullptr, params, nullptr); });
    };
    auto volatile direct = &noted;
    const double without = launch(direct);
    const double off = launch(hook);
    install(&handlers);
    const double on = launch(hook);
    install(nullptr);
    print("door_launch_ns", on - without, 30);
    print("door_passthrough_ns", off - without, 10);
    void* const self = dlopen(nullptr, RTLD_NOW);
    const double theirs = time_of([&](int) { real_dlsym(self, "malloc"); });
    print("door_dlsym_ns", time_of([&](int) { dlsym(self, "malloc"); }) - theirs, 10);
    return 0;
}

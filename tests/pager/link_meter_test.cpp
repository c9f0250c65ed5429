// The link meter against a driver that answers what a test says.
#include "shim/pager/link_meter.hpp"

#include <utility>
#include <vector>

#include "tests/catch.hpp"

using namespace udnnmem::pager;

namespace {

std::vector<float> elapsed;   // ms, of the moves to come

Driver timed_driver() {
    Driver d{};
    d.cuEventCreate = [](CUevent* e, unsigned) { return *e = reinterpret_cast<CUevent>(1), CUDA_SUCCESS; };
    d.cuEventDestroy_v2 = [](CUevent) { return CUDA_SUCCESS; };
    d.cuEventRecord = [](CUevent, CUstream) { return CUDA_SUCCESS; };
    d.cuEventQuery = [](CUevent) { return CUDA_SUCCESS; };
    d.cuEventElapsedTime = [](float* ms, CUevent, CUevent) {
        *ms = elapsed.front();
        elapsed.erase(elapsed.begin());
        return CUDA_SUCCESS;
    };
    return d;
}

double rate_of(const std::vector<std::pair<std::size_t, float>>& moves) {
    const Driver driver = timed_driver();
    LinkMeter meter(driver);
    for (const auto& [bytes, ms] : moves) {
        elapsed.push_back(ms);
        meter.begin(nullptr, bytes);
        meter.end(nullptr);
        meter.poll();
        elapsed.clear();
    }
    return meter.rate();
}

}  // namespace

TEST_CASE("the link's rate is that of most bytes, whatever held up some of them") {
    CHECK(rate_of({}) == 0);
    CHECK(rate_of({{1'000'000, 1}}) == 1e9);
    CHECK(rate_of({{1'000'000, 1}, {1'000'000, 50}, {1'000'000, 1}}) == 1e9);   // the second copy was submitted late
    CHECK(rate_of({{1000, 1}, {1000, 1}, {1'000'000, 2}}) == 5e8);              // small ones are all latency
    std::vector<std::pair<std::size_t, float>> many(LinkMeter::kSamples, {1'000'000, 4.0f});
    many.insert(many.end(), 100, {1'000'000, 1.0f});
    CHECK(rate_of(many) == 2.5e8);                                              // no more of a size are timed ...
    many.assign(100, {4096, 1.0f});
    many.insert(many.end(), 3, {1'000'000, 1.0f});
    CHECK(rate_of(many) == 1e9);                                                // ... but what is larger
}

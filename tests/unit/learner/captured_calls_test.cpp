// Whose a captured node is.
#include "tests/interpose/scripted.hpp"

#include "shim/preload/captured_calls.hpp"
#include "tests/catch.hpp"

using namespace udnnmem;
using namespace udnnmem::preload;

namespace {
std::uintptr_t newest_node = 0;
CUgraphNode node(std::uintptr_t n) { return reinterpret_cast<CUgraphNode>(n); }
// A launch of the call, the n-th node.
void capture(const profiler::math::Call& call, std::uintptr_t n) {
    const profiler::math::As in(call);
    newest_node = n;
    captured::note(nullptr);
}
}  // namespace

TEST_CASE("two calls that are captured at once, in turns, are two") {
    SCRIPT(cuStreamGetCaptureInfo_v3, [](CUstream, CUstreamCaptureStatus* status, cuuint64_t*, CUgraph*, const CUgraphNode** nodes, const CUgraphEdgeData**, std::size_t* count) {
        static CUgraphNode last;
        last = node(newest_node);
        *status = CU_STREAM_CAPTURE_STATUS_ACTIVE, *nodes = &last, *count = 1;
        return CUDA_SUCCESS;
    });
    const profiler::math::Call a{"a", 10, 5}, b{"b", 20, 6};
    capture(a, 1), capture(b, 2), capture(a, 3), capture(b, 4);
    CHECK(captured::tag_of(node(1)) != 0);
    CHECK(captured::tag_of(node(1)) == captured::tag_of(node(3)));
    CHECK(captured::tag_of(node(2)) == captured::tag_of(node(4)));
    CHECK(captured::tag_of(node(1)) != captured::tag_of(node(2)));
    capture({}, 3);
    CHECK(captured::tag_of(node(3)) == 0);
}

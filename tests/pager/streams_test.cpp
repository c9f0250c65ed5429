// Which ops have completed, as events tell it: of streams of other contexts, and of streams that capture.
#include "shim/pager/streams.hpp"

#include <bit>
#include <map>
#include <thread>

#include "tests/catch.hpp"

using namespace udnnmem::pager;

namespace {

CUcontext context(std::uintptr_t n) { return reinterpret_cast<CUcontext>(n); }
CUstream stream(std::uintptr_t n) { return reinterpret_cast<CUstream>(n); }
CUcontext owner(CUstream s) { return context(reinterpret_cast<std::uintptr_t>(s) / 16); }  // stream 0x23 is context 2's; a thread remembers its streams, so that each test has its own

struct Event {
    CUcontext context = nullptr;
    bool recorded = false, done = false, captured = false;
};
std::vector<CUcontext> current;
std::map<CUevent, Event> events;
bool capturing = false;   // all streams
bool idle = false;        // legacy streams
int asked = 0;            // of them

// A driver that refuses to record an event on a stream of another context than its own.
Driver play_driver() {
    current = {context(1)};
    events.clear();
    capturing = idle = false;
    asked = 0;
    Driver d;
    d.cuCtxGetCurrent = [](CUcontext* c) { return *c = current.back(), CUDA_SUCCESS; };
    d.cuCtxPushCurrent_v2 = [](CUcontext c) { return current.push_back(c), CUDA_SUCCESS; };
    d.cuCtxPopCurrent_v2 = [](CUcontext* c) { return *c = current.back(), current.pop_back(), CUDA_SUCCESS; };
    d.cuMemGetInfo_v2 = [](std::size_t*, std::size_t*) { return CUDA_SUCCESS; };
    d.cuCtxGetDevice = [](CUdevice* device) { return *device = 0, CUDA_SUCCESS; };
    d.cuStreamGetCtx = [](CUstream s, CUcontext* c) { return *c = owner(s), CUDA_SUCCESS; };
    d.cuEventCreate = [](CUevent* e, unsigned) {
        *e = reinterpret_cast<CUevent>(events.size() + 1);
        events[*e].context = current.back();
        return CUDA_SUCCESS;
    };
    d.cuEventDestroy_v2 = [](CUevent e) { return events.erase(e) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; };
    d.cuEventRecord = [](CUevent e, CUstream s) {
        if (s != CU_STREAM_LEGACY && events.at(e).context != owner(s)) return CUDA_ERROR_INVALID_HANDLE;
        events[e].recorded = true, events[e].done = false, events[e].captured = capturing;
        return CUDA_SUCCESS;
    };
    d.cuEventQuery = [](CUevent e) {
        return events.at(e).captured ? CUDA_ERROR_CAPTURED_EVENT : events.at(e).done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    };
    d.cuStreamQuery = [](CUstream s) {
        REQUIRE((s == CU_STREAM_LEGACY && !capturing));
        return ++asked, idle ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    };
    d.cuStreamIsCapturing = [](CUstream, CUstreamCaptureStatus* s) {
        *s = capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
        return CUDA_SUCCESS;
    };
    return d;
}

std::uint64_t op_on(StreamTable& table, StreamSlot& slot) {
    const std::uint64_t number = table.next();
    raise(slot.last_op, number);
    table.submitted(slot);
    return number;
}

}  // namespace

TEST_CASE("a stream is marked in its own context, whichever is current", "[streams]") {
    const Driver driver = play_driver();
    StreamTable table(driver);
    StreamSlot& slot = table.slot(stream(0x23));
    CHECK(slot.context == context(2));
    std::uint64_t last = 0;
    for (std::uint32_t i = 0; i < StreamTable::kMarkEvery; ++i) last = op_on(table, slot);
    REQUIRE(events.size() == 1);
    CHECK((events.begin()->second.context == context(2) && events.begin()->second.recorded));
    CHECK(current == std::vector{context(1)});
    table.synchronised_context(context(1), last);  // another's end says nothing of it
    CHECK_FALSE(table.complete(slot.bit(), last));
    events.begin()->second.done = true;
    CHECK(table.complete(slot.bit(), last));
    CHECK(&table.slot(stream(0x23)) == &slot);
    last = op_on(table, slot);
    table.mark_tails();
    CHECK((events.size() == 1 && !events.begin()->second.done));  // the event serves again
    events.begin()->second.done = true;
    CHECK(table.complete(slot.bit(), last));
}

TEST_CASE("a stream is marked before a capture begins there, and not from then on", "[streams]") {
    const Driver driver = play_driver();
    StreamTable table(driver);
    StreamSlot& slot = table.slot(stream(0x11));
    const std::uint64_t before = op_on(table, slot);
    REQUIRE(events.empty());
    table.capture_beginning(stream(0x11));
    CHECK((events.size() == 1 && !events.begin()->second.captured));
    slot.last_op = table.next();
    table.mark_tails();   // the driver has not yet heard of the capture
    CHECK(events.size() == 1);
    events.begin()->second.done = true;
    CHECK(table.complete(slot.bit(), before));
    table.capture_ended(stream(0x11));
    table.mark_tails();
    CHECK_FALSE(table.complete(slot.bit(), slot.last_op));
    events.begin()->second.done = true;
    CHECK(table.complete(slot.bit(), slot.last_op));
}

TEST_CASE("what ran anywhere before a capture is known to have ended while it goes on", "[streams]") {
    const Driver driver = play_driver();
    StreamTable table(driver);
    StreamSlot& legacy = table.slot(CU_STREAM_LEGACY);
    StreamSlot& other = table.slot(stream(0x14));
    const std::uint64_t first = op_on(table, legacy), last = op_on(table, other);
    idle = true;
    table.capture_beginning(stream(0x11));
    capturing = true;
    for (auto& [event, state] : events) state.done = true;
    CHECK(table.complete(legacy.bit(), first));
    CHECK(table.complete(other.bit(), last));
}

TEST_CASE("a legacy stream is asked, and marked only beside an op of one's own", "[streams]") {
    const Driver driver = play_driver();
    static std::uintptr_t contexts = 100;
    current = {context(++contexts)};   // whose legacy stream no test has used
    StreamTable table(driver);
    StreamSlot& legacy = table.slot(CU_STREAM_LEGACY);
    const std::uint64_t first = op_on(table, legacy);
    table.mark_tails();
    const StreamSlot other;
    table.mark_tails(&other);
    CHECK((events.empty() && asked == 2));
    CHECK_FALSE(table.complete(legacy.bit(), first));
    SECTION("it knows by itself") {
        idle = true;
        CHECK(table.complete(legacy.bit(), first));
        const int before = asked;
        CHECK(table.complete(legacy.bit(), first));
        CHECK(asked == before);
    }
    SECTION("it is not asked while anything captures") {
        table.capture_beginning(stream(0x15));
        capturing = true;
        table.mark_tails();
        CHECK_FALSE(table.complete(legacy.bit(), first));
        CHECK(table.completed_everywhere(table.now()) < first);
        capturing = false;
        table.capture_ended(stream(0x15));
        idle = true;
        CHECK(table.completed_everywhere(table.now()) >= first);
    }
    SECTION("before the thread's next op there") {
        table.mark_tails(&legacy);
        REQUIRE(events.size() == 1);
        const int before = asked;
        CHECK_FALSE(table.complete(legacy.bit(), first));
        CHECK(asked == before);   // the mark tells
        events.begin()->second.done = true;
        CHECK(table.complete(legacy.bit(), first));
    }
    SECTION("behind so many of its own") {
        for (std::uint32_t i = 1; i < StreamTable::kMarkEvery; ++i) op_on(table, legacy);
        CHECK(events.size() == 1);
    }
}

TEST_CASE("nobody records on another's stream that may be full", "[streams]") {
    const Driver driver = play_driver();
    StreamTable table(driver);
    StreamSlot& slot = table.slot(stream(0x16));
    for (std::size_t i = 0; i < (StreamTable::kRoomForMarks + 1) * StreamTable::kMarkEvery; ++i) op_on(table, slot);
    const std::size_t full = events.size();
    CHECK(full == StreamTable::kRoomForMarks + 1);
    const std::uint64_t last = op_on(table, slot);
    table.mark_tails();
    CHECK(events.size() == full);
    table.mark_tails(&slot);   // its own op waits for room there anyway
    CHECK(events.size() == full + 1);
    for (auto& [event, state] : events) state.done = true;
    CHECK(table.complete(slot.bit(), last));
    op_on(table, slot);
    table.mark_tails();
    CHECK(slot.marked >= slot.last_op);
}

TEST_CASE("a mark that was captured tells nothing, and another takes its place", "[streams]") {
    const Driver driver = play_driver();
    StreamTable table(driver);
    StreamSlot& slot = table.slot(stream(0x12));
    const std::uint64_t last = op_on(table, slot);
    capturing = true;   // by joining another stream's capture, just now
    table.mark_tails();
    CHECK((events.size() == 1 && events.begin()->second.captured));
    capturing = false;
    CHECK_FALSE(table.complete(slot.bit(), last));
    table.mark_tails();
    CHECK_FALSE(table.complete(slot.bit(), last));
    for (auto& [event, state] : events) state.done = true;
    CHECK(table.complete(slot.bit(), last));
}

TEST_CASE("the slots and events of streams that come and go serve again", "[streams]") {
    const Driver driver = play_driver();
    StreamTable table(driver);
    const bool waited_for = GENERATE(false, true);   // before it goes
    for (std::uintptr_t s = 0x15; s < 0x20; ++s) {
        StreamSlot& slot = table.slot(stream(s));
        op_on(table, slot);
        if (waited_for) table.synchronised_context(slot.context, table.now());
        table.stream_destroying(stream(s));
        for (auto& [event, state] : events) state.done = true;
    }
    CHECK(events.size() <= 2);
    CHECK(std::popcount(table.all_streams()) <= 2);
}

TEST_CASE("an event marks no stream of another context, nor of one that came after its own", "[streams]") {
    const Driver driver = play_driver();
    StreamTable table(driver);
    const auto all_come = [] { for (auto& [event, state] : events) state.done = state.recorded; };
    const auto runs = [&](CUstream on) {   // an op, to its end
        StreamSlot& slot = table.slot(on);
        const std::uint64_t last = op_on(table, slot);
        table.mark(slot);
        all_come();
        CHECK(table.complete(slot.bit(), last));
    };
    runs(stream(0x51));
    table.stream_destroying(stream(0x51));
    all_come();
    runs(stream(0x62));   // its slot, in another context
    CHECK(table.all_streams() == 1);
    runs(stream(0x62));
    CHECK(events.size() == 2);
    table.context_destroyed(context(5));
    table.context_destroyed(context(6));
    events.clear();
    runs(stream(0x53));   // of a context with the same handle
    runs(stream(0x63));
}

TEST_CASE("captures end with their streams and contexts", "[streams]") {
    const Driver driver = play_driver();
    StreamTable table(driver);
    table.capture_ended(stream(0x13));   // of which nobody saw the beginning
    CHECK_FALSE(table.capturing());
    table.capture_beginning(stream(0x13));
    table.capture_beginning(stream(0x13));   // the driver refuses
    table.capture_ended(stream(0x13));
    table.capture_beginning(stream(0x24));
    CHECK(table.capturing());
    table.stream_destroying(stream(0x13));
    CHECK(table.capturing());
    table.context_destroyed(context(2));
    CHECK_FALSE(table.capturing());
    table.capture_beginning(stream(0x13));
    CHECK(table.capturing());
}

TEST_CASE("the captures of a thread's own stream end with the thread", "[streams]") {
    const Driver driver = play_driver();
    StreamTable table(driver);
    std::thread([&] { table.capture_beginning(CU_STREAM_PER_THREAD); }).join();
    CHECK(table.capturing());
    table.slot(stream(0x14));   // where it is noticed
    CHECK_FALSE(table.capturing());
}

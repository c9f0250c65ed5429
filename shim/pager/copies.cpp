// DevicePager: the copies of moves, piece by piece (copy_queue.hpp).
#include <algorithm>

#include "shim/pager/pager.hpp"

namespace udnnmem::pager {
namespace {
constexpr double kPatience = 4;            // a copy may take so much longer than its bytes at the link's rate
constexpr double kSlowLink = 1e9;          // bytes per second, of a link that was not measured
constexpr double kWaitingSeconds = 4e-4;   // of copies behind the one in progress: longer than the mover sleeps ...
constexpr double kMostWaiting = 4e-3;      // ... and than it is away for a call that changes a mapping, as far as that goes
constexpr double kPieceSeconds = 2e-4;
constexpr std::size_t kLeastPiece = 64 << 10;

struct Spot {
    const Frame* frame;
    std::size_t at, left;   // in it
};
// Where the byte `at` of a buffer is.
Spot spot(const std::vector<Frame*>& frames, std::size_t at) {
    std::size_t i = 0;
    for (; at >= frames[i]->bytes; ++i) at -= frames[i]->bytes;
    return {frames[i], at, frames[i]->bytes - at};
}

double or_slow(double rate) { return rate > 0 ? rate : kSlowLink; }
}  // namespace

// Whether a copy may be queued: the link never runs dry for it, and what the program copies finds no long queue before it.
bool DevicePager::link_wants(bool in) {
    CopyQueue& queue = in ? copies_in_ : copies_out_;
    const double seconds = std::clamp(1e-9 * static_cast<double>(slow_remap_ns_), kWaitingSeconds, kMostWaiting);
    return static_cast<double>(queue.waiting()) < seconds * or_slow(in ? rate_in() : rate_out());
}

// When the copy that is about to begin has ended at the latest, behind those of its direction, if the link carries a share of what
// it did before.
void DevicePager::expect_copy(Move& m) {
    const bool in = m.kind == Move::Kind::fetch;
    std::int64_t begins = now_ns();
    for (const Move& other : moves_)
        if ((other.kind == Move::Kind::fetch) == in && other.stage == Move::Stage::copy && other.recorded) begins = std::max(begins, other.copied_by_ns);
    m.copied_by_ns = begins + static_cast<std::int64_t>(kPatience * 1e9 * static_cast<double>(m.left) / or_slow(in ? rate_in() : rate_out()));
}

bool DevicePager::copies_go_on() const {
    const std::int64_t now = now_ns();
    return std::any_of(moves_.begin(), moves_.end(), [now](const Move& m) { return m.stage == Move::Stage::copy && m.recorded && now < m.copied_by_ns; });
}

// The next piece of the move's copy; it ends within a frame on either side.
bool DevicePager::copy_piece(Move& m) {
    Buffer* const b = m.buffer;
    const bool in = m.kind == Move::Kind::fetch;
    const Spot device = spot(in ? m.frames : b->device_frames, b->capacity - m.left), host = spot(b->host_frames, b->capacity - m.left);
    const auto most = static_cast<std::size_t>(kPieceSeconds * or_slow(in ? rate_in() : rate_out())) / kLeastPiece * kLeastPiece;
    const Piece piece{device.at, host.at, std::min({device.left, host.left, std::max(most, kLeastPiece)})};
    const CUstream stream = in ? in_stream_ : out_stream_;
    LinkMeter& meter = in ? meter_in_ : meter_out_;
    meter.begin(stream, piece.bytes);
    if ((in ? backing_->copy_in(*device.frame, *host.frame, piece, stream) : backing_->copy_out(*host.frame, *device.frame, piece, stream)) != CUDA_SUCCESS) return false;
    meter.end(stream);
    (in ? copies_in_ : copies_out_).added(stream, piece.bytes);
    (in ? stats_.bytes_in : stats_.bytes_out) += piece.bytes;
    m.left -= piece.bytes;
    return true;
}

// Queues the move's copy, as much of it as the link wants now. False: the driver refuses.
bool DevicePager::begin_copy(Move& m) {
    m.left = m.buffer->capacity;
    expect_copy(m);
    return copy_piece(m) && record(m, m.kind == Move::Kind::fetch ? in_stream_ : out_stream_) && copy_on(m);
}

// ... and more of it, until nothing is left.
bool DevicePager::copy_on(Move& m) {
    const bool in = m.kind == Move::Kind::fetch;
    bool more = false;
    for (; m.left && link_wants(in); more = true)
        if (!copy_piece(m)) return false;
    return !more || record(m, in ? in_stream_ : out_stream_);
}

// What is written from here on, by whoever is not known of, changes the hash: it is of before the copy begins.
bool DevicePager::hash_and_copy_out(Move& m) { return hash(m, m.buffer->device_frames, look_stream_) && join_look(m, out_stream_) && begin_copy(m); }

// All at once.
bool DevicePager::copy_out_again(Buffer* b) {
    for (std::size_t at = 0, bytes; at < b->capacity; at += bytes) {
        const Spot device = spot(b->device_frames, at), host = spot(b->host_frames, at);
        bytes = std::min(device.left, host.left);
        if (backing_->copy_out(*host.frame, *device.frame, {device.at, host.at, bytes}, out_stream_) != CUDA_SUCCESS) return false;
    }
    stats_.bytes_out += b->capacity;
    return true;
}

}  // namespace udnnmem::pager

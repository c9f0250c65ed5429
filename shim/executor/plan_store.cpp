#include "shim/executor/plan_store.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>
#include <zstd.h>

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "profiler/trace/record.hpp"
#include "profiler/trace/writer/json_line.hpp"

namespace udnnmem::executor {
namespace {

using profiler::JsonLine;
using profiler::Record;

constexpr std::uint32_t kSkippable = 0x184D2A55;   // a frame that zstd passes over
constexpr std::size_t kSumBytes = 16, kHeadBytes = 8 + kSumBytes;
constexpr std::size_t kLongest = std::size_t{1} << 28;
constexpr std::int64_t kMost = std::int64_t{1} << 62;
constexpr const char* kKinds[] = {"evict", "clean", "fetch"};   // by pager::Order::Kind

std::string head_of(std::string_view body) {
    std::string head(kHeadBytes, '\0');
    const std::uint32_t words[] = {kSkippable, static_cast<std::uint32_t>(kSumBytes)};
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum, XXH3_128bits(body.data(), body.size()));
    std::memcpy(head.data(), words, 8);
    std::memcpy(head.data() + 8, sum.digest, kSumBytes);
    return head;
}

tl::unexpected<Error> failed(const std::string& path, const std::string& why) { return tl::make_unexpected(Error{path + ": " + why}); }

std::string hex(std::uint64_t v) {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(v));
    return text;
}

std::vector<std::int64_t> numbers(const std::vector<BufferId>& ids) {
    std::vector<std::int64_t> out;
    for (const BufferId id : ids) out.push_back(id.value);
    return out;
}

class Reader {
  public:
    bool take(Record& record) {
        const std::string& kind = record.kind();
        if (kind == "plans") return take_plans(record);
        if (kind == "course") return take_course(record);
        if (!stored_ && (kind == "buffer" || kind == "op" || kind == "order")) return record.fail("kind", "comes before any course");
        if (kind == "buffer") return take_buffer(record);
        if (kind == "op") return take_op(record);
        if (kind == "order") return take_order(record);
        return true;
    }
    bool finish() {
        end_course();
        return seen_;
    }
    StoredPlans plans;

  private:
    bool take_plans(Record& record) {
        seen_ = true;
        return record.read_text("device", plans.device) && record.read_text("policy", plans.policy) && record.read_integer("granule_bytes", 1, kMost, plans.granule.value);
    }

    bool take_course(Record& record) {
        end_course();
        stored_ = true;
        std::int64_t ahead = 0;
        if (!record.read_integer("promised_ns", 0, kMost, rows_.promised.value) || !record.read_integer("memory_bytes", 0, kMost, rows_.memory.value) || !record.read_integer("lookahead", 0, 64, ahead)) return false;
        rows_.lookahead = static_cast<int>(ahead);
        if (!record.read_number_or("link_in", 0, 0, rows_.link_in) || !record.read_number_or("link_out", 0, 0, rows_.link_out) || !record.read_integers("start_ns", 0, kMost, numbers_)) return false;
        for (const std::int64_t start : numbers_) rows_.start.push_back(Nanoseconds(start));
        return true;
    }

    bool take_buffer(Record& record) {
        profiler::TraceBuffer b;
        b.id = BufferId(static_cast<std::int32_t>(sequence_.plan_trace.buffers.size()));
        std::int64_t alloc = -1, free = -1;
        if (!record.read_integer("bytes", 1, kMost, b.bytes.value) || !record.read_flag_or("persistent", false, b.persistent) ||
            !record.read_integer_or("alloc_op", -1, INT32_MAX, -1, alloc) || !record.read_integer_or("free_op", -1, INT32_MAX, -1, free))
            return false;
        b.alloc_op = OpIndex(static_cast<std::int32_t>(alloc));
        b.free_op = OpIndex(static_cast<std::int32_t>(free));
        sequence_.plan_trace.buffers.push_back(b);
        return true;
    }

    bool take_op(Record& record) {
        profiler::TraceOp op;
        op.index = OpIndex(static_cast<std::int32_t>(sequence_.plan_trace.ops.size()));
        std::string shape;
        std::int64_t stream = 0;
        const std::int64_t last = static_cast<std::int64_t>(sequence_.plan_trace.buffers.size()) - 1;
        if (!record.read_text("name", op.name) || !record.read_text("shape", shape) || !record.read_integer("stream", 0, INT32_MAX, stream) ||
            !record.read_integer("duration_ns", 0, kMost, op.duration.value) || !record.read_integers("used", 0, last, numbers_))
            return false;
        op.stream = static_cast<std::int32_t>(stream);
        sequence_.steps.push_back({nullptr, std::strtoull(shape.c_str(), nullptr, 16), static_cast<std::uint32_t>(sequence_.uses.size()), static_cast<std::uint32_t>(numbers_.size())});
        for (const std::int64_t b : numbers_) sequence_.uses.push_back({static_cast<std::int32_t>(b), 0});
        for (auto [field, to] : {std::pair{"reads", &op.reads}, {"writes", &op.writes}}) {
            if (!record.read_integers(field, 0, last, numbers_)) return false;
            for (const std::int64_t b : numbers_) to->push_back(BufferId(static_cast<std::int32_t>(b)));
        }
        sequence_.plan_trace.header.ideal += op.duration;
        sequence_.plan_trace.ops.push_back(std::move(op));
        return true;
    }

    bool take_order(Record& record) {
        std::int64_t after = 0, buffer = 0;
        std::string what;
        if (!record.read_integer("after_op", 0, static_cast<std::int64_t>(sequence_.steps.size()) - 1, after) || !record.read_text("do", what) ||
            !record.read_integer("buffer", 0, static_cast<std::int64_t>(sequence_.plan_trace.buffers.size()) - 1, buffer))
            return false;
        std::size_t kind = 0;
        while (kind < std::size(kKinds) && what != kKinds[kind]) ++kind;
        if (kind == std::size(kKinds)) return record.fail("do", "must be evict, clean or fetch");
        if (after + 1 < static_cast<std::int64_t>(rows_.begin.size())) return record.fail("after_op", "must not go back");
        while (static_cast<std::int64_t>(rows_.begin.size()) <= after) rows_.begin.push_back(static_cast<std::uint32_t>(rows_.entries.size()));
        rows_.entries.push_back({static_cast<pager::Order::Kind>(kind), static_cast<std::int32_t>(buffer)});
        return true;
    }

    void end_course() {
        if (stored_ && !sequence_.steps.empty()) {
            while (rows_.begin.size() <= sequence_.steps.size()) rows_.begin.push_back(static_cast<std::uint32_t>(rows_.entries.size()));
            rows_.start.resize(sequence_.steps.size());
            sequence_.persistent.resize(sequence_.plan_trace.buffers.size());
            for (std::size_t k = 0; k < sequence_.steps.size(); ++k) sequence_.steps[k].name = sequence_.plan_trace.ops[k].name.c_str();
            find_next_uses(sequence_);
            mark_steps(rows_, sequence_);
            plans.courses.push_back({std::move(sequence_), std::make_shared<const Rows>(std::move(rows_))});
        }
        sequence_ = Sequence();
        rows_ = Rows();
        stored_ = false;
    }

    bool seen_ = false, stored_ = false;
    Sequence sequence_;
    Rows rows_;
    std::vector<std::int64_t> numbers_;
};

}  // namespace

std::string plans_line(const std::string& device, const std::string& policy, Bytes granule) {
    return JsonLine("plans").add("device", device).add("policy", policy).add("granule_bytes", granule).finish();
}

std::string course_lines(const Sequence& sequence, const profiler::Trace& trace, const Rows& rows) {
    std::vector<std::int64_t> starts;
    for (const Nanoseconds start : rows.start) starts.push_back(start.value);
    std::string lines = JsonLine("course").add("promised_ns", rows.promised).add("memory_bytes", rows.memory).add("lookahead", rows.lookahead)
                            .add("link_in", rows.link_in).add("link_out", rows.link_out).add("start_ns", starts).finish();
    for (const profiler::TraceBuffer& b : sequence.plan_trace.buffers)
        lines += JsonLine("buffer").add("bytes", b.bytes).add("persistent", b.persistent).add("alloc_op", b.alloc_op.value).add("free_op", b.free_op.value).finish();
    for (std::size_t k = 0; k < sequence.steps.size(); ++k) {
        const Sequence::Step& step = sequence.steps[k];
        const profiler::TraceOp& op = trace.ops[k];
        std::vector<std::int64_t> used;
        for (std::uint32_t i = step.first; i < step.first + step.count; ++i) used.push_back(sequence.uses[i].buffer);
        lines += JsonLine("op").add("name", step.name).add("shape", hex(step.shape)).add("stream", op.stream).add("duration_ns", op.duration).add("used", used)
                     .add("reads", numbers(op.reads)).add("writes", numbers(op.writes)).finish();
    }
    for (std::size_t k = 0; k + 1 < rows.begin.size(); ++k)
        for (std::uint32_t i = rows.begin[k]; i < rows.begin[k + 1]; ++i)
            lines += JsonLine("order").add("after_op", static_cast<std::int64_t>(k)).add("do", kKinds[static_cast<std::size_t>(rows.entries[i].kind)]).add("buffer", rows.entries[i].buffer).finish();
    return lines;
}

Expected<void> write_plans(const std::string& path, const std::string& lines) {
    std::string body(ZSTD_compressBound(lines.size()), '\0');
    const std::size_t size = ZSTD_compress(body.data(), body.size(), lines.data(), lines.size(), 3);
    if (ZSTD_isError(size)) return failed(path, ZSTD_getErrorName(size));
    body.resize(size);
    const std::string data = head_of(body) + body, temporary = path + "." + std::to_string(::getpid()) + ".tmp";
    std::FILE* file = std::fopen(temporary.c_str(), "wb");
    if (!file) return failed(path, std::strerror(errno));
    bool good = std::fwrite(data.data(), 1, data.size(), file) == data.size();
    good = std::fclose(file) == 0 && good;
    good = good && std::rename(temporary.c_str(), path.c_str()) == 0;
    if (good) return {};
    const int reason = errno;
    std::remove(temporary.c_str());
    return failed(path, std::strerror(reason));
}

Expected<StoredPlans> read_plans(const std::string& path, bool& missing) {
    std::FILE* file = std::fopen(path.c_str(), "rb");
    missing = !file && errno == ENOENT;
    if (!file) return failed(path, std::strerror(errno));
    std::string data;
    char piece[1 << 16];
    while (const std::size_t n = data.size() > kLongest ? 0 : std::fread(piece, 1, sizeof piece, file)) data.append(piece, n);
    std::fclose(file);
    const std::string_view body = std::string_view(data).substr(std::min(data.size(), kHeadBytes));
    if (data.size() < kHeadBytes || data.compare(0, kHeadBytes, head_of(body)) != 0) return failed(path, "no plan, or damaged: its checksum is wrong");
    const unsigned long long length = ZSTD_getFrameContentSize(body.data(), body.size());
    if (length == ZSTD_CONTENTSIZE_UNKNOWN || length == ZSTD_CONTENTSIZE_ERROR || length > kLongest) return failed(path, "no plan");
    std::string text(length, '\0');
    if (ZSTD_decompress(text.data(), text.size(), body.data(), body.size()) != length) return failed(path, "damaged zstd data");
    Reader reader;
    if (auto read = profiler::for_each_record(path, text, [&](Record& record) { return reader.take(record); }); !read) return tl::make_unexpected(read.error());
    if (!reader.finish()) return failed(path, "no plan");
    return std::move(reader.plans);
}

}  // namespace udnnmem::executor

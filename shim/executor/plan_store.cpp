#include "shim/executor/plan_store.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>
#include <zstd.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "profiler/trace/writer/json_line.hpp"
#include "shim/executor/plan_lines.hpp"
#include "profiler/trace/descriptor.hpp"

namespace udnnmem::executor {
namespace {

using profiler::JsonLine;
using profiler::Record;

constexpr std::uint32_t kSkippable = 0x184D2A55;   // a frame that zstd passes over
constexpr std::size_t kSumBytes = 16, kHeadBytes = 8 + kSumBytes;
constexpr int kTries = 16;                         // names that are taken
constexpr int kLinks = 40;                         // symbolic links in a row, as the kernel has it
constexpr std::size_t kLongest = std::size_t{1} << 28;
constexpr std::uint32_t kMagic[] = {kSkippable, static_cast<std::uint32_t>(kSumBytes)};

std::string head_of(std::string_view body) {
    std::string head(kHeadBytes, '\0');
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum, XXH3_128bits(body.data(), body.size()));
    std::memcpy(head.data(), kMagic, sizeof kMagic);
    std::memcpy(head.data() + 8, sum.digest, kSumBytes);
    return head;
}

tl::unexpected<Error> failed(const std::string& path, const std::string& why) { return tl::make_unexpected(Error{path + ": " + why}); }

// A regular file, or null: nothing is there (errno is ENOENT), or what `why` says.
std::FILE* open_file(const std::string& path, struct stat& found, std::string& why) {
    if (::stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode)) {
        why = std::string(S_ISDIR(found.st_mode) ? "is a directory" : "is no regular file") + ": name a file";
        errno = EINVAL;
        return nullptr;
    }
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);   // a pipe by now: without a writer to wait for
    std::FILE* const file = descriptor < 0 ? nullptr : ::fdopen(descriptor, "rb");
    if (file) return file;
    const int reason = errno;
    why = std::strerror(reason);
    errno = reason;
    return nullptr;
}

// Appends what is left of the file, or its first `most` bytes. False: it cannot be read.
bool read_on(std::FILE* file, std::string& data, std::size_t most) {
    char piece[1 << 16];
    while (const std::size_t n = data.size() >= most ? 0 : std::fread(piece, 1, std::min(sizeof piece, most - data.size()), file)) data.append(piece, n);
    return !std::ferror(file);
}

// What its first bytes say.
PlanFile kind_of(std::string_view data) {
    if (data.empty()) return PlanFile::none;
    return data.size() >= sizeof kMagic && std::memcmp(data.data(), kMagic, sizeof kMagic) == 0 ? PlanFile::plans : PlanFile::other;
}

constexpr const char* kOther = "is no plan of udnnmem: left alone; name another file";

// Where a file is written that may be a symbolic link to one, or to none yet.
std::string target_of(std::string path) {
    char to[PATH_MAX];
    for (int i = 0; i < kLinks; ++i) {
        const ssize_t length = ::readlink(path.c_str(), to, sizeof to);
        if (length < 0) break;
        const std::size_t folder = to[0] == '/' ? 0 : path.rfind('/') + 1;   // npos + 1 is 0
        path.replace(folder, std::string::npos, to, static_cast<std::size_t>(length));
    }
    return path;
}

std::string hex(std::uint64_t v) {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(v));
    return text;
}

std::string hex(const std::vector<char>& bytes) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string text;
    for (const char c : bytes) text += {digits[static_cast<unsigned char>(c) >> 4], digits[c & 15]};
    return text;
}

template <class From, class Number>
std::vector<std::int64_t> numbers(const From& from, Number number) {
    std::vector<std::int64_t> out;
    for (const auto& f : from) out.push_back(static_cast<std::int64_t>(number(f)));
    return out;
}
template <class Id>
std::vector<std::int64_t> numbers(const std::vector<Id>& ids) {
    if constexpr (std::is_integral_v<Id>) return numbers(ids, [](Id id) { return id; });
    else return numbers(ids, [](Id id) { return id.value; });
}

std::string proof_line(std::int64_t k, const replay::KnownOp& op) {
    using Use = replay::KnownOp::Use;
    std::vector<std::int64_t> varies;
    for (std::size_t i = 0; i < op.varies.size(); ++i)
        if (op.varies[i]) varies.push_back(static_cast<std::int64_t>(i));
    return JsonLine("proof").add("op", k).add("runs", kRuns[static_cast<std::size_t>(op.kind)]).add("code", hex(op.code)).add("inspected", op.inspected).add("trials", op.trials).add("arguments", hex(op.proved_with)).add("varies", varies)
        .add("buffers", numbers(op.uses, [](const Use& u) { return u.buffer; })).add("bytes", numbers(op.uses, [](const Use& u) { return u.bytes; }))
        .add("does", numbers(op.uses, [](const Use& u) { return u.reads + 2 * u.writes + 4 * u.saved; })).add("made_by", numbers(op.uses, [](const Use& u) { return u.made_by; }))
        .add("at", numbers(op.operands, [](const replay::Operand& o) { return o.at; })).add("use", numbers(op.operands, [](const replay::Operand& o) { return o.use; }))
        .add("delta", numbers(op.operands, [](const replay::Operand& o) { return o.delta; })).finish();
}

}  // namespace

bool storable(const replay::KnownOp& op) { return op.proven && (op.kind != replay::Launch::Kind::kernel || op.code); }

std::string plans_line(const std::string& device, const std::string& policy, Bytes granule, bool node_by_node) {
    return JsonLine("plans").add("device", device).add("policy", policy).add("granule_bytes", granule).add("node_by_node", node_by_node).finish();
}

std::string denied_line(std::uint64_t code) { return JsonLine("denied").add("code", hex(code)).finish(); }

std::string course_lines(const Sequence& sequence, const profiler::Trace& seen, const replay::Known* known, const Rows& rows) {
    std::string lines = JsonLine("course").add("promised_ns", rows.promised).add("memory_bytes", rows.memory).add("budget_bytes", rows.budget).add("host_bytes", rows.host).add("peak_bytes", rows.peak).add("lookahead", rows.lookahead)
                            .add("link_in", rows.link_in).add("link_out", rows.link_out).add("start_ns", numbers(rows.start)).add("anew", rows.anew).finish();
    for (const auto* buffers : {&sequence.plan_trace.buffers, &sequence.small.buffers})
        for (const profiler::TraceBuffer& b : *buffers)
            lines += JsonLine("buffer").add("bytes", b.bytes).add("persistent", b.persistent).add("small", buffers == &sequence.small.buffers)
                         .add("alloc_op", b.alloc_op.value).add("free_op", b.free_op.value).finish();
    for (std::size_t k = 0; k < sequence.steps.size(); ++k) {
        const Sequence::Step& step = sequence.steps[k];
        const replay::Program::Step& all = sequence.program.steps[k];
        const profiler::TraceOp& op = seen.ops[k];
        const auto used = sequence.program.uses.begin() + all.first, small = used + all.movable;
        lines += JsonLine("op").add("name", step.name).add("shape", hex(step.shape)).add("stream", op.stream).add("duration_ns", op.duration).add("code", hex(known ? known->ops[k].code : 0))
                     .add("used", std::vector<std::int64_t>(used, small)).add("used_small", std::vector<std::int64_t>(small, small + all.small))
                     .add("reads", numbers(op.reads)).add("writes", numbers(op.writes)).add("may_write", numbers(sequence.plan_trace.ops[k].writes))
                     .add("small_reads", numbers(sequence.small.reads[k])).add("small_writes", numbers(sequence.small.writes[k])).finish();
    }
    for (std::size_t k = 0; known && k < known->ops.size(); ++k)
        if (storable(known->ops[k])) lines += proof_line(static_cast<std::int64_t>(k), known->ops[k]);
    for (const Rows::Replay& r : rows.replays)
        lines += JsonLine("replay").add("before_op", r.before).add("ops", numbers(r.slice->ops)).add("buffers", numbers(r.slice->buffers)).finish();
    for (std::size_t k = 0; k + 1 < rows.begin.size(); ++k)
        for (std::uint32_t i = rows.begin[k]; i < rows.begin[k + 1]; ++i) {
            const Rows::Entry& entry = rows.entries[i];
            JsonLine line("order");
            line.add("after_op", static_cast<std::int64_t>(k)).add("do", kOrders[static_cast<std::size_t>(entry.kind)]).add("buffer", entry.buffer);
            if (entry.kind == pager::Order::Kind::drop) line.add("replay", entry.replay);
            lines += line.finish();
        }
    return lines;
}

Expected<void> write_plans(const std::string& path, const std::string& lines) {
    std::string body(ZSTD_compressBound(lines.size()), '\0');
    const std::size_t size = ZSTD_compress(body.data(), body.size(), lines.data(), lines.size(), 3);
    if (ZSTD_isError(size)) return failed(path, ZSTD_getErrorName(size));
    body.resize(size);
    const std::string data = head_of(body) + body;
    const std::string target = target_of(path);
    struct stat old {};
    std::string why;
    std::FILE* const there = open_file(target, old, why);
    if (!there && errno != ENOENT) return failed(path, why);
    if (there) {
        std::string begin;
        const bool read = read_on(there, begin, sizeof kMagic);
        std::fclose(there);
        if (!read || kind_of(begin) == PlanFile::other) return failed(path, kOther);
        if (::faccessat(AT_FDCWD, target.c_str(), W_OK, AT_EACCESS) != 0) return failed(path, std::strerror(errno));
    }
    // Processes of several machines may share the folder: their numbers say nothing.
    std::random_device draw;
    std::string temporary;
    int descriptor = -1;
    for (int tries = 0; descriptor < 0 && (!tries || errno == EEXIST) && tries < kTries; ++tries) {
        temporary = target + "." + hex(std::uint64_t{draw()} << 32 | draw()) + ".tmp";
        descriptor = above_standard(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    }
    std::FILE* file = descriptor < 0 ? nullptr : ::fdopen(descriptor, "wb");
    if (!file) return failed(path, std::strerror(errno));
    bool good = std::fwrite(data.data(), 1, data.size(), file) == data.size();
    if (there) {
        if (::fchown(descriptor, old.st_uid, old.st_gid) != 0) old.st_mode &= 0777;   // ours then
        good = ::fchmod(descriptor, old.st_mode & 07777) == 0 && good;
    }
    good = std::fclose(file) == 0 && good;
    good = good && std::rename(temporary.c_str(), target.c_str()) == 0;
    if (good) return {};
    const int reason = errno;
    std::remove(temporary.c_str());
    return failed(path, std::strerror(reason));
}

Expected<StoredPlans> read_plans(const std::string& path, PlanFile& is) {
    is = PlanFile::other;
    struct stat found {};
    std::string why, data;
    std::FILE* const file = open_file(path, found, why);
    if (!file) {
        if (errno == ENOENT) is = PlanFile::none;
        return failed(path, why);
    }
    errno = 0;
    const bool read = read_on(file, data, kHeadBytes) && (kind_of(data) != PlanFile::plans || read_on(file, data, kLongest));
    const int reason = errno;
    std::fclose(file);
    if (!read) return failed(path, std::string(std::strerror(reason)) + ": left alone");
    is = kind_of(data);
    if (is != PlanFile::plans) return failed(path, is == PlanFile::none ? "is empty" : kOther);
    const std::string_view body = std::string_view(data).substr(std::min(data.size(), kHeadBytes));
    if (data.size() < kHeadBytes || data.compare(0, kHeadBytes, head_of(body)) != 0) return failed(path, "is damaged: its checksum is wrong");
    const unsigned long long length = ZSTD_getFrameContentSize(body.data(), body.size());
    if (length == ZSTD_CONTENTSIZE_UNKNOWN || length == ZSTD_CONTENTSIZE_ERROR || length > kLongest) return failed(path, "no plan");
    std::string text(length, '\0');
    if (ZSTD_decompress(text.data(), text.size(), body.data(), body.size()) != length) return failed(path, "damaged zstd data");
    PlanReader reader;
    if (auto read = profiler::for_each_record(path, text, [&](Record& record) { return reader.take(record); }); !read) return tl::make_unexpected(read.error());
    if (!reader.finish()) return failed(path, "no plan");
    return std::move(reader.plans);
}

}  // namespace udnnmem::executor

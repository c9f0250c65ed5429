#include "profiler/trace/record.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

namespace udnnmem::profiler {
namespace {

constexpr std::size_t longest_text = std::size_t{8} << 30;
constexpr std::size_t longest_first_line = std::size_t{1} << 20;

struct CloseFile {
    void operator()(std::FILE* file) const {
        if (file != stdin) std::fclose(file);
    }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

struct FreeContext {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

tl::unexpected<Error> failed(const std::string& path, const std::string& what) {
    return tl::make_unexpected(Error{fmt::format("{}: {}", path, what)});
}

// Whether a large text need not be read on: a device of zeros, a picture, one endless line.
bool hopeless(const std::string& text) {
    if (text.size() <= longest_first_line) return false;
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    return first == std::string::npos || text[first] != '{' || text.find('\n', first) > longest_first_line;
}

Expected<std::string> decompress(const std::string& path, const std::string& packed) {
    std::unique_ptr<ZSTD_DCtx, FreeContext> context(ZSTD_createDCtx());
    if (!context) return failed(path, "out of memory");
    std::string text;
    std::string piece(ZSTD_DStreamOutSize(), '\0');
    ZSTD_inBuffer input{packed.data(), 0, 0};
    // A block at once, as zstd asks for it less the next one's header: of a call that fails nothing comes out. Also after the
    // input's end: a piece may still hold output. A frame that never ends is a file cut short.
    constexpr std::size_t block_header = 3, checksum = 4;
    std::size_t asked = 1;
    for (bool more = true; more;) {
        ZSTD_outBuffer output{piece.data(), piece.size(), 0};
        input.size = std::min(packed.size(), input.pos + (asked > block_header ? asked - block_header : asked));
        const std::size_t state = ZSTD_decompressStream(context.get(), &output, &input);
        if (ZSTD_isError(state)) {
            const std::size_t end = packed.find_last_not_of('\0') + 1;  // a file system may fill up with zeros what a power cut left unwritten
            if (end < packed.size()) return decompress(path, packed.substr(0, end));
            if (text.find('\n') != std::string::npos) return text + "\ndamaged\n";  // is no record: what follows is known to be lost
            return failed(path, fmt::format("damaged zstd data after byte {}: {}", input.pos, ZSTD_getErrorName(state)));
        }
        text.append(piece, 0, output.pos);
        if (text.size() > longest_text) return failed(path, "more than 8 GiB of text");
        if (hopeless(text)) break;
        more = input.pos < packed.size() || output.pos == output.size;
        asked = std::max<std::size_t>(1, state);
    }
    // It ended within a block, when more is asked for than the next one's header, or a checksum: what was in it is lost.
    if (asked > checksum && !text.empty() && text.back() == '\n') text += '{';
    return text;
}

// A value as it appears in an error: short, whatever it is. dump() recurses into what may be nested a million deep.
std::string shown(const nlohmann::json& value) {
    if (value.is_structured()) return value.is_array() ? "a list" : "an object";
    std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    if (text.size() > 40) text = text.substr(0, 37) + "...";
    return text;
}

}  // namespace

Expected<std::string> read_text(const std::string& path) {
    File file(path == "-" ? stdin : std::fopen(path.c_str(), "rb"));
    if (!file) return failed(path, std::strerror(errno));
    std::string data;
    char piece[1 << 16];
    constexpr std::string_view zstd = "\x28\xb5\x2f\xfd", gzip = "\x1f\x8b";
    constexpr std::string_view stored("\x55\x2a\x4d\x18\x10\0\0\0", 8);   // shim/executor/plan_store: a frame with a checksum, which zstd passes over
    while (const std::size_t n = std::fread(piece, 1, sizeof piece, file.get())) {
        data.append(piece, n);
        if (data.size() > longest_text) return failed(path, "more than 8 GiB");
        if (data.compare(0, zstd.size(), zstd) != 0 && hopeless(data)) break;
    }
    if (std::ferror(file.get())) return failed(path, std::strerror(errno));
    if (!data.empty() && data.compare(0, zstd.size(), zstd.substr(0, data.size())) == 0) return decompress(path, data);  // also cut within its magic number
    if (data.compare(0, stored.size(), stored) == 0) return failed(path, "holds plans that a run stored (UDNNMEM_PLAN): only the library reads it, udnnmem plan --emit writes a plan for --check");
    if (data.compare(0, gzip.size(), gzip) == 0) return failed(path, "is packed by gzip: unpack it first (gunzip)");
    return data;
}

Expected<void> write_text(const std::string& path, const std::string& text) {
    std::string packed;
    const std::string* data = &text;
    if (path.size() > 4 && path.compare(path.size() - 4, 4, ".zst") == 0) {
        packed.resize(ZSTD_compressBound(text.size()));
        const std::size_t size = ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 10);
        if (ZSTD_isError(size)) return failed(path, ZSTD_getErrorName(size));
        packed.resize(size);
        data = &packed;
    }
    return write_file(path, *data, true);
}

Expected<void> write_file(const std::string& path, const std::string& data, bool replace) {
    std::error_code ignored;
    std::filesystem::path target = path;
    for (int links = 0; links < 40 && std::filesystem::is_symlink(target, ignored); ++links) target = target.parent_path() / std::filesystem::read_symlink(target, ignored);
    struct stat there {};
    const bool exists = ::stat(target.c_str(), &there) == 0;
    const bool whole = !exists || S_ISREG(there.st_mode);  // not a device, not a pipe
    if (exists && whole && !replace) return failed(path, std::strerror(EEXIST));
    if (exists && whole && ::access(target.c_str(), W_OK) != 0) return failed(path, std::strerror(errno));
    std::string to = target.string();
    int file = -1;
    if (whole) {
        for (int i = 0; file < 0 && (i == 0 || (errno == EEXIST && i < 100)); ++i) {
            to = fmt::format("{}.{}.{}.tmp", target.string(), ::getpid(), i);
            file = ::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        }
        if (file < 0 && exists) return failed(path, fmt::format("cannot be replaced: no file can be made beside it: {}", std::strerror(errno)));
    } else {
        file = ::open(to.c_str(), O_WRONLY | O_CLOEXEC);
    }
    if (file < 0) return failed(path, std::strerror(errno));
    bool good = true;
    if (whole && exists) {
        if (::fchown(file, there.st_uid, there.st_gid) != 0) errno = 0;  // another's file: it becomes ours
        good = ::fchmod(file, there.st_mode & 0777) == 0;
    }
    for (std::size_t done = 0; good && done < data.size();) {
        const ssize_t n = ::write(file, data.data() + done, data.size() - done);
        good = n >= 0 || errno == EINTR;
        if (n > 0) done += static_cast<std::size_t>(n);
    }
    int reason = good ? 0 : errno;
    if (::close(file) != 0 && good) good = false, reason = errno;
    if (good && whole) {
        good = ::renameat2(AT_FDCWD, to.c_str(), AT_FDCWD, target.c_str(), replace ? 0 : RENAME_NOREPLACE) == 0;
        if (!good && (errno == EINVAL || errno == ENOSYS)) good = std::rename(to.c_str(), target.c_str()) == 0;  // a file system without it
        if (!good) reason = errno;
    }
    if (good) return {};
    if (whole) ::unlink(to.c_str());
    return failed(path, std::strerror(reason));
}

bool Record::fail(const char* field, const std::string& rule) {
    const auto kind = object_.find("kind");
    std::string name = kind != object_.end() && kind->is_string() ? kind->get<std::string>() : "record";
    if (std::size_t end = 40; name.size() > end) {
        while (end > 0 && (name[end] & 0xc0) == 0x80) --end;  // whole characters
        name.resize(end);
    }
    error_.message = fmt::format("{}: line {}: {}.{}: {}", file_, line_, name, field, rule);
    // Kind and rule may quote the file: a message stays one line.
    std::replace_if(error_.message.begin(), error_.message.end(), [](unsigned char c) { return c < ' '; }, '?');
    return false;
}

bool Record::begins(const char* wanted) {
    if (kind() == wanted) return true;
    if (kind() == "plan") error_.message = fmt::format("{0}: is a plan, not a trace: udnnmem plan TRACE --check {0} judges it", file_);
    else if (kind() == "header") error_.message = fmt::format("{}: is a trace, not a plan: udnnmem plan TRACE --emit PLAN writes one", file_);
    else return fail("kind", fmt::format("the first record must be the {}", wanted));
    return false;
}

bool Record::read_integer(const char* field, std::int64_t low, std::int64_t high, std::int64_t& to) {
    const auto found = object_.find(field);
    if (found == object_.end()) return fail(field, "is missing");
    const bool too_large = found->is_number_unsigned() && found->get<std::uint64_t>() > static_cast<std::uint64_t>(high);
    if (!found->is_number_integer()) return fail(field, fmt::format("must be a whole number, is {}", shown(*found)));
    if (too_large || found->get<std::int64_t>() < low || found->get<std::int64_t>() > high)
        return fail(field, fmt::format("must be between {} and {}, is {}", low, high, shown(*found)));
    to = found->get<std::int64_t>();
    return true;
}

bool Record::read_integer_or(const char* field, std::int64_t low, std::int64_t high, std::int64_t otherwise, std::int64_t& to) {
    to = otherwise;
    return !has(field) || read_integer(field, low, high, to);
}

bool Record::read_number_or(const char* field, double low, double otherwise, double& to) {
    to = otherwise;
    const auto found = object_.find(field);
    if (found == object_.end()) return true;
    if (!found->is_number() || !(found->get<double>() >= low)) return fail(field, fmt::format("must be a number of at least {}, is {}", low, shown(*found)));
    to = found->get<double>() + 0.0;  // -0 becomes 0
    return true;
}

bool Record::read_text(const char* field, std::string& to) {
    const auto found = object_.find(field);
    if (found == object_.end()) return fail(field, "is missing");
    if (!found->is_string()) return fail(field, fmt::format("must be text, is {}", shown(*found)));
    to = found->get<std::string>();
    return true;
}

bool Record::read_text_or(const char* field, std::string_view otherwise, std::string& to) {
    to = otherwise;
    return !has(field) || read_text(field, to);
}

bool Record::read_flag_or(const char* field, bool otherwise, bool& to) {
    to = otherwise;
    const auto found = object_.find(field);
    if (found == object_.end()) return true;
    if (!found->is_boolean()) return fail(field, fmt::format("must be true or false, is {}", shown(*found)));
    to = found->get<bool>();
    return true;
}

bool Record::read_integers(const char* field, std::int64_t low, std::int64_t high, std::vector<std::int64_t>& to) {
    to.clear();
    const auto found = object_.find(field);
    if (found == object_.end()) return fail(field, "is missing");
    if (!found->is_array()) return fail(field, fmt::format("must be a list, is {}", shown(*found)));
    to.reserve(found->size());
    for (const auto& entry : *found) {
        if (!entry.is_number_integer()) return fail(field, fmt::format("must hold whole numbers, holds {}", shown(entry)));
        const bool too_large = entry.is_number_unsigned() && entry.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
        if (too_large || entry.get<std::int64_t>() < low || entry.get<std::int64_t>() > high)
            return fail(field, fmt::format("must hold numbers between {} and {}, holds {}", low, high, shown(entry)));
        to.push_back(entry.get<std::int64_t>());
    }
    return true;
}

Expected<Damage> read_records(const std::string& file, const char* what, std::string_view text, const std::function<bool(Record&)>& each, Invalid invalid) {
    std::int64_t line = 0;
    bool any = false;
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        const bool whole = end != std::string_view::npos;
        const std::string_view content = text.substr(0, end);
        text.remove_prefix(whole ? end + 1 : text.size());
        ++line;
        const std::size_t first = content.find_first_not_of(" \t\r");
        if (first == std::string_view::npos) continue;
        const nlohmann::json object = nlohmann::json::parse(content, nullptr, false);
        if (!any && !object.is_object() && (whole || content[first] != '{')) return failed(file, fmt::format("not {} of udnnmem (JSON lines, plain or zstd)", what));
        if (!object.is_object()) return Damage{line, object.is_discarded() && !whole, {}};
        const auto kind = object.find("kind");
        const std::string where = fmt::format("{}: line {}: ", file, line);
        std::string wrong;
        if (kind == object.end()) wrong = where + "kind: is missing";
        else if (!kind->is_string()) wrong = where + "kind: must be text, is " + shown(*kind);
        else if (Record record(file, line, object); !each(record)) wrong = record.error().message;
        if (!wrong.empty()) {
            if (!any || invalid == Invalid::refused) return tl::make_unexpected(Error{wrong});
            return Damage{line, false, wrong.compare(0, where.size(), where) == 0 ? wrong.substr(where.size()) : wrong};
        }
        any = true;
    }
    return Damage{};
}

Expected<void> for_each_record(const std::string& file, std::string_view text, const std::function<bool(Record&)>& each) {
    const auto damaged = read_records(file, "a plan", text, each);
    if (!damaged) return tl::make_unexpected(damaged.error());
    if (damaged->cut_short) return failed(file, fmt::format("cut short at line {}: half of a plan is none, write or copy it again", damaged->line));
    if (damaged->line) return failed(file, fmt::format("line {}: is not a JSON object", damaged->line));
    return {};
}

}  // namespace udnnmem::profiler

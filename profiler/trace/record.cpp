#include "profiler/trace/record.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include <fmt/format.h>
#include <unistd.h>
#include <zstd.h>

namespace udnnmem::profiler {
namespace {

constexpr std::size_t longest_text = std::size_t{8} << 30;

struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

struct FreeContext {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

tl::unexpected<Error> failed(const std::string& path, const std::string& what) {
    return tl::make_unexpected(Error{fmt::format("{}: {}", path, what)});
}

Expected<std::string> decompress(const std::string& path, const std::string& packed) {
    std::unique_ptr<ZSTD_DCtx, FreeContext> context(ZSTD_createDCtx());
    if (!context) return failed(path, "out of memory");
    std::string text;
    std::string piece(ZSTD_DStreamOutSize(), '\0');
    ZSTD_inBuffer input{packed.data(), packed.size(), 0};
    // Also after the input's end: a piece may still hold output. A frame that never ends is a file cut short.
    for (bool more = true; more;) {
        ZSTD_outBuffer output{piece.data(), piece.size(), 0};
        const std::size_t state = ZSTD_decompressStream(context.get(), &output, &input);
        if (ZSTD_isError(state)) {
            const std::size_t end = packed.find_last_not_of('\0') + 1;  // a file system may fill up with zeros what a power cut left unwritten
            if (end < packed.size()) return decompress(path, packed.substr(0, end));
            return failed(path, fmt::format("damaged zstd data at byte {}: {}", input.pos, ZSTD_getErrorName(state)));
        }
        text.append(piece, 0, output.pos);
        if (text.size() > longest_text) return failed(path, "more than 8 GiB of text");
        more = input.pos < input.size || output.pos == output.size;
    }
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
    File file(std::fopen(path.c_str(), "rb"));
    if (!file) return failed(path, std::strerror(errno));
    std::string data;
    char piece[1 << 16];
    while (const std::size_t n = std::fread(piece, 1, sizeof piece, file.get())) {
        data.append(piece, n);
        if (data.size() > longest_text) return failed(path, "more than 8 GiB");
    }
    if (std::ferror(file.get())) return failed(path, std::strerror(errno));
    if (data.compare(0, 4, "\x28\xb5\x2f\xfd") == 0) return decompress(path, data);
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
    std::error_code ignored;
    std::filesystem::path target = path;
    for (int links = 0; links < 40 && std::filesystem::is_symlink(target, ignored); ++links) target = target.parent_path() / std::filesystem::read_symlink(target, ignored);
    const auto there = std::filesystem::status(target, ignored);
    const bool replaceable = !std::filesystem::exists(there) || std::filesystem::is_regular_file(there);  // not a device, not a pipe
    const std::string to = replaceable ? fmt::format("{}.{}.tmp", target.string(), ::getpid()) : target.string();
    std::FILE* file = std::fopen(to.c_str(), "wb");
    if (!file) return failed(path, std::strerror(errno));
    bool good = std::fwrite(data->data(), 1, data->size(), file) == data->size();
    good = std::fclose(file) == 0 && good;
    good = good && (!replaceable || std::rename(to.c_str(), target.c_str()) == 0);
    if (!good) {
        const int reason = errno;
        if (replaceable) std::remove(to.c_str());
        return failed(path, std::strerror(reason));
    }
    return {};
}

bool Record::fail(const char* field, const std::string& rule) {
    const auto kind = object_.find("kind");
    error_.message = fmt::format("{}: line {}: {}.{}: {}", file_, line_,
                                 kind != object_.end() && kind->is_string() ? kind->get<std::string>().substr(0, 40) : "record", field, rule);
    // Kind and rule may quote the file: a message stays one line.
    std::replace_if(error_.message.begin(), error_.message.end(), [](unsigned char c) { return c < ' '; }, '?');
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

Expected<void> for_each_record(const std::string& file, std::string_view text, const std::function<bool(Record&)>& each) {
    std::int64_t line = 0;
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        const bool whole = end != std::string_view::npos;
        const std::string_view content = text.substr(0, end);
        text.remove_prefix(whole ? end + 1 : text.size());
        ++line;
        if (content.find_first_not_of(" \t\r") == std::string_view::npos) continue;
        const nlohmann::json object = nlohmann::json::parse(content, nullptr, false);
        if (object.is_discarded() && !whole) break;
        if (!object.is_object()) return failed(file, fmt::format("line {}: is not a JSON object", line));
        const auto kind = object.find("kind");
        if (kind == object.end()) return failed(file, fmt::format("line {}: kind: is missing", line));
        if (!kind->is_string()) return failed(file, fmt::format("line {}: kind: must be text, is {}", line, shown(*kind)));
        Record record(file, line, object);
        if (!each(record)) return tl::make_unexpected(record.error());
    }
    return {};
}

}  // namespace udnnmem::profiler

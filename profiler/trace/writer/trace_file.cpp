#include "profiler/trace/writer/trace_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "profiler/trace/descriptor.hpp"

namespace udnnmem::profiler {

TraceFile::~TraceFile() {
    if (file_ >= 0) ::close(file_);
    ZSTD_freeCCtx(context_);
}

static bool is_character_device(const std::string& path) {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 && S_ISCHR(status.st_mode);
}

int TraceFile::would_open(const std::string& path) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) == 0) return is_character_device(path) ? 0 : EEXIST;
    if (path.empty()) return ENOENT;
    const std::string folder = path.substr(0, path.rfind('/') + 1);
    return ::access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) == 0 ? 0 : errno;
}

std::string TraceFile::unused(const std::string& path) {
    std::size_t stem = path.size();
    for (const std::string_view ending : {".zst", ".jsonl"})
        if (std::string_view(path).substr(0, stem).ends_with(ending)) stem -= ending.size();
    std::string name = path;
    for (int n = 2; n < 1000 && would_open(name) == EEXIST; ++n) name = path.substr(0, stem) + "." + std::to_string(n) + path.substr(stem);
    return name;
}

int TraceFile::open(const std::string& path) {
    file_ = above_standard(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0666));
    if (file_ < 0 && errno == EEXIST) {
        if (!is_character_device(path)) return error_ = EEXIST;
        file_ = above_standard(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
    }
    if (file_ < 0) return error_ = errno;
    if (path.size() > 4 && path.compare(path.size() - 4, 4, ".zst") == 0) {
        context_ = ZSTD_createCCtx();
        if (!context_) return error_ = ENOMEM;
        ZSTD_CCtx_setParameter(context_, ZSTD_c_compressionLevel, 3);
        packed_.resize(ZSTD_CStreamOutSize());
    }
    return 0;
}

int TraceFile::send(const char* data, std::size_t size) {
    while (size && !error_) {
        const ssize_t n = ::write(file_, data, size);
        if (n < 0) {
            if (errno != EINTR) error_ = errno;
            continue;
        }
        written_ += n;
        data += n;
        size -= static_cast<std::size_t>(n);
    }
    return error_;
}

int TraceFile::compress(std::string_view lines, ZSTD_EndDirective how) {
    ZSTD_inBuffer input{lines.data(), lines.size(), 0};
    while (!error_) {
        ZSTD_outBuffer output{packed_.data(), packed_.size(), 0};
        const std::size_t left = ZSTD_compressStream2(context_, &output, &input, how);
        if (ZSTD_isError(left)) return error_ = EIO;
        send(packed_.data(), output.pos);
        if (how == ZSTD_e_continue ? input.pos == input.size : left == 0) break;
    }
    return error_;
}

int TraceFile::append(std::string_view lines) {
    if (error_) return error_;
    return context_ ? compress(lines, ZSTD_e_continue) : send(lines.data(), lines.size());
}

int TraceFile::flush() {
    if (error_ || !context_) return error_;
    return compress({}, ZSTD_e_flush);
}

int TraceFile::finish() {
    if (!error_ && context_) compress({}, ZSTD_e_end);
    if (file_ >= 0 && ::close(file_) != 0 && !error_) error_ = errno;
    file_ = -1;
    return error_;
}

}  // namespace udnnmem::profiler

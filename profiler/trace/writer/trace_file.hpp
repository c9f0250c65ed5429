// An append-only file of lines that is readable at any time to the last flush(): plain, or one zstd
// frame whose blocks are completed at each flush. Never replaces a file. One thread.
#pragma once

#include <zstd.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace udnnmem::profiler {

class TraceFile {
  public:
    TraceFile() = default;
    ~TraceFile();
    TraceFile(const TraceFile&) = delete;
    TraceFile& operator=(const TraceFile&) = delete;

    // Each returns 0 or an errno value; after the first that is not 0 nothing more is written. A path that
    // exists is EEXIST, save a character device (/dev/null).
    int open(const std::string& path);
    // What open() would return now, without making anything.
    static int would_open(const std::string& path);
    // `path`, or where it exists NAME.2.jsonl.zst and so on for NAME.jsonl.zst: the first that does not.
    static std::string unused(const std::string& path);
    int append(std::string_view lines);
    int flush();
    int finish();  // ends the frame and closes

    std::int64_t written() const { return written_; }  // bytes in the file

  private:
    int compress(std::string_view lines, ZSTD_EndDirective how);
    int send(const char* data, std::size_t size);

    int file_ = -1;
    int error_ = 0;
    std::int64_t written_ = 0;
    ZSTD_CCtx* context_ = nullptr;  // null: plain
    std::string packed_;
};

}  // namespace udnnmem::profiler

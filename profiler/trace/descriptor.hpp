// Descriptors of the library's own. A program that has closed 0, 1 or 2 takes the next file with that number for its own.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace udnnmem {

// `file`, which was just opened, under a number above 2. -1 and errno: there is none, `file` is closed.
inline int above_standard(int file) noexcept {
    if (file < 0 || file > STDERR_FILENO) return file;
    const int raised = ::fcntl(file, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int reason = errno;
    ::close(file);
    errno = reason;
    return raised;
}

}  // namespace udnnmem

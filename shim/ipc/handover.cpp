#include "shim/ipc/handover.hpp"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "profiler/trace/descriptor.hpp"
#include "shim/host/quiet_thread.hpp"

namespace udnnmem::ipc {
namespace {

constexpr std::size_t kAtOnce = 64;  // descriptors in one message; the kernel takes up to 253
constexpr int kPatience = 5;         // seconds for whoever is on the other side

struct Message {
    std::uint64_t all = 0;   // pieces in all messages of an answer
    std::uint64_t here = 0;
    std::uint64_t bytes[kAtOnce] = {};
};

socklen_t name_of(pid_t pid, std::uint64_t key, sockaddr_un& out) {
    out = {};
    out.sun_family = AF_UNIX;
    const int n = std::snprintf(out.sun_path + 1, sizeof out.sun_path - 1, "udnnmem-%d-%016llx", static_cast<int>(pid), static_cast<unsigned long long>(key));
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(n));
}

// Of the same user, or of the one that may do all.
bool trusted(int connection) {
    ucred peer{};
    socklen_t size = sizeof peer;
    return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == geteuid() || peer.uid == 0);
}
void be_patient(int socket) {
    const timeval limit{kPatience, 0};
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

bool send_pieces(int connection, const std::vector<Piece>& pieces, std::size_t first) {
    Message message;
    message.all = pieces.size();
    message.here = std::min(kAtOnce, pieces.size() - first);
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kAtOnce)] = {};
    int descriptors[kAtOnce];
    for (std::size_t i = 0; i < message.here; ++i) {
        message.bytes[i] = pieces[first + i].bytes;
        descriptors[i] = pieces[first + i].descriptor;
    }
    iovec data{&message, sizeof message};
    msghdr header{};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    if (message.here) {
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE(sizeof(int) * message.here);
        cmsghdr* rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int) * message.here);
        std::memcpy(CMSG_DATA(rights), descriptors, sizeof(int) * message.here);
    }
    return sendmsg(connection, &header, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof message);
}

// Adds what came; false: nothing, or not what was promised.
bool receive_pieces(int connection, std::vector<Piece>& pieces, std::uint64_t& all) {
    Message message;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kAtOnce)];
    iovec data{&message, sizeof message};
    msghdr header{};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    const ssize_t n = recvmsg(connection, &header, MSG_CMSG_CLOEXEC);
    if (n < 0) return false;
    std::size_t came = 0;
    for (cmsghdr* c = CMSG_FIRSTHDR(&header); c; c = CMSG_NXTHDR(&header, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        for (std::size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
            int descriptor;
            std::memcpy(&descriptor, CMSG_DATA(c) + i * sizeof(int), sizeof descriptor);
            pieces.push_back({descriptor, came < kAtOnce ? message.bytes[came] : 0});
            ++came;
        }
    }
    all = message.all;
    return n == static_cast<ssize_t>(sizeof message) && came == message.here && !(header.msg_flags & (MSG_CTRUNC | MSG_TRUNC));
}

}  // namespace

void discard(std::vector<Piece>& pieces) {
    for (const Piece& p : pieces) close(p.descriptor);
    pieces.clear();
}

bool Handover::start() {
    if (getrandom(&key_, sizeof key_, 0) != sizeof key_) return false;
    const int made = above_standard(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (made < 0) return false;
    sockaddr_un name;
    const socklen_t size = name_of(getpid(), key_, name);
    listening_ = made;
    try {
        if (bind(made, reinterpret_cast<sockaddr*>(&name), size) == 0 && listen(made, 64) == 0) {
            host::quiet_thread([this] { run(); }).detach();
            return true;
        }
    } catch (const std::system_error&) {
    }
    close(made);
    listening_ = -1;
    return false;
}

void Handover::run() {
    thread_started_();
    for (;;) {
        const int connection = above_standard(accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC));
        if (connection < 0) {
            if (errno == EBADF || errno == EINVAL) return;
            usleep(10'000);  // out of descriptors: some may be closed
            continue;
        }
        be_patient(connection);
        if (trusted(connection)) answer(connection);
        close(connection);
    }
}

void Handover::answer(int connection) {
    std::uint64_t number = 0;
    if (recv(connection, &number, sizeof number, 0) != sizeof number) return;
    std::lock_guard lock(mutex_);
    auto it = offers_.find(number);
    static const std::vector<Piece> none;
    const std::vector<Piece>& pieces = it == offers_.end() ? none : it->second;
    std::size_t sent = 0;
    do {
        if (!send_pieces(connection, pieces, sent)) return;
        sent += std::min(kAtOnce, pieces.size() - sent);
    } while (sent < pieces.size());
}

std::uint64_t Handover::offer(std::vector<Piece> pieces) {
    for (Piece& p : pieces) p.descriptor = above_standard(p.descriptor);   // as the driver made them
    std::lock_guard lock(mutex_);
    if (listening_ < 0 && !start()) {
        discard(pieces);
        return 0;
    }
    offers_[next_] = std::move(pieces);
    return next_++;
}

void Handover::withdraw(std::uint64_t number) {
    std::lock_guard lock(mutex_);
    auto it = offers_.find(number);
    if (it == offers_.end()) return;
    discard(it->second);
    offers_.erase(it);
}

// Nobody answers here: who asks the parent after its end must not wait for this process.
void Handover::forked() {
    if (listening_ >= 0) close(listening_);
}

std::vector<Piece> fetch(pid_t pid, std::uint64_t key, std::uint64_t number) {
    std::vector<Piece> pieces;
    const int connection = above_standard(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (connection < 0) return pieces;
    be_patient(connection);
    sockaddr_un name;
    const socklen_t size = name_of(pid, key, name);
    std::uint64_t all = 0;
    bool whole = connect(connection, reinterpret_cast<sockaddr*>(&name), size) == 0 && trusted(connection) &&
                 send(connection, &number, sizeof number, MSG_NOSIGNAL) == sizeof number;
    do whole = whole && receive_pieces(connection, pieces, all);
    while (whole && pieces.size() < all);
    close(connection);
    if (!whole) discard(pieces);
    return pieces;
}

}  // namespace udnnmem::ipc

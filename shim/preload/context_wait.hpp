// Waiting for what the program has put into a context: cuCtxSynchronize, and cuMemFree, which waits likewise. Not for our own copies,
// where that can be told apart (shim/pager/program_streams.hpp).
#pragma once

#include "interpose/handlers.hpp"

namespace udnnmem::preload {

class Session;

// `context` null: the current one. `whole` waits for the context as a whole and is called on the same terms as a handler's `submit`; its
// answer is the answer. Any thread.
CUresult wait_for_context(Session& s, CUcontext context, interpose::Submit whole) noexcept;

// Handlers, with or without a session: of streams that are made, about to be destroyed, and gone with their context.
void remember_stream(CUstream stream, bool green) noexcept;
void forget_stream(CUstream stream) noexcept;
void forget_streams(CUcontext context) noexcept;
// The calling thread puts something into its per-thread stream, whatever that is.
void name_own_stream() noexcept;

}  // namespace udnnmem::preload

// How a program's freed memory is kept or handed back. For programs: a library leaves this to its caller.
#pragma once

namespace torsor {

/// Asks the C library to keep freed memory of up to 32 MiB a piece for the next allocation. Training allocates and
/// frees the same sizes at every step; without this the kernel takes the pages back and clears them each time. Call it
/// before the first thread starts. Does nothing where the C library is not glibc.
void keep_freed_memory();

/// Hands what is free back to the system, so that what is measured next does not count it.
void hand_back_freed_memory();

}  // namespace torsor

// The whole public interface for users of the library: name an encoding, attend with it, keep a cache.
#pragma once

#include "torsor/attention/attend.h"
#include "torsor/attention/kv_cache.h"
#include "torsor/encoding/registry.h"

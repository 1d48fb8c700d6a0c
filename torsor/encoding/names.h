// The registry's list: one line an encoding. Each function is defined beside its encoding.
#pragma once

#include "torsor/encoding/registry.h"

namespace torsor {

NameInfo none_name();
NameInfo sinusoidal_name();
NameInfo learned_name();
NameInfo rope_name();
NameInfo xpos_name();
NameInfo linear_name();
NameInfo ntk_name();
NameInfo ntk_by_parts_name();
NameInfo dynamic_name();
NameInfo yarn_name();
NameInfo longrope_name();
NameInfo llama3_name();
NameInfo logn_name();
NameInfo llama4_scale_name();
NameInfo alibi_name();
NameInfo t5_name();
NameInfo kerple_name();
NameInfo sandwich_name();
NameInfo fire_name();
NameInfo cope_name();
NameInfo txl_name();
NameInfo fox_name();
NameInfo grape_a_name();
NameInfo grape_ap_name();
NameInfo grape_m_name();
NameInfo tape_name();
NameInfo sipe_name();

}  // namespace torsor

// The 16 values of IQ4_NL and IQ4_XS (`kvalues_iq4nl` in ggml's ggml-common.h), four to a word.
const TABLE_0: u32 = 0xbfad9881u;
const TABLE_1: u32 = 0xf6eaddcfu;
const TABLE_2: u32 = 0x26190d01u;
const TABLE_3: u32 = 0x71594535u;

"""The WebGPU implementations: all that differs between wgpu-native (package wgpu) and Dawn (package wgpudawn)."""

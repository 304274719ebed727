// The schemas of torch.ops.mlc_native, the same for all devices. mlc_native/ops.py documents the
// ops and their shapes. cpu.cc and cuda.cc register the kernels.
#include "torch_ops/library.h"
#include "torch_ops/moe.h"
#include "torch_ops/outputs.h"
#include "torch_ops/sampling.h"

MLC_NATIVE_OPS_LIBRARY(m) {
  m.def("embedding(Tensor table, Tensor ids, float scale=1.0) -> Tensor");
  m.def("rms_norm(Tensor x, Tensor weight, float eps=1e-6, float weight_offset=0.0) -> Tensor");
  m.def(
      "add_rms_norm(Tensor(a!) residual, Tensor x, Tensor weight, Tensor? post_weight=None, "
      "float eps=1e-6, float weight_offset=0.0) -> Tensor");
  m.def("gated_activation(Tensor x, str activation='silu') -> Tensor");
  m.def("soft_cap_(Tensor(a!) x, float cap) -> ()");

  m.def("pack_weight(Tensor weight, str format) -> Tensor");
  m.def("unpack_weight(Tensor packed, str format, int k) -> Tensor");
  m.def(
      "linear(Tensor x, Tensor packed, str format, Tensor? bias=None, bool float_output=False) -> "
      "Tensor");
  m.def(
      "moe(Tensor x, Tensor router_logits, Tensor gate_up, Tensor down, str format, "
      "int num_chosen, str score='softmax', Tensor? correction=None, int num_groups=1, "
      "int num_chosen_groups=1, bool renormalize=False, float smallest_sum=1e-20, "
      "float scale=1.0, float jitter=0.0, Tensor? gate_up_bias=None, Tensor? down_bias=None, "
      "str activation='silu', float limit=0.0, float sharpness=1.0) -> Tensor");

  m.def("new_kv_pages(Tensor like, int num_pages, int kv_heads, int head_dim) -> Tensor");
  m.def("read_kv(Tensor kv, Tensor slots, int head_dim) -> Tensor");
  m.def(
      "qk_rope_write_kv(Tensor(a!) qkv, Tensor(b!) kv, Tensor positions, Tensor slots, Tensor cos, "
      "Tensor sin, int head_dim, Tensor? q_norm=None, Tensor? k_norm=None, float eps=1e-6, "
      "float weight_offset=0.0) -> ()");
  m.def("copy_pages_(Tensor(a!) kv, Tensor pairs, int head_dim) -> ()");
  m.def(
      "paged_decode_attention(Tensor q, Tensor kv, Tensor block_tables, Tensor lengths, "
      "float? scale=None, float soft_cap=0.0, int window=0) -> Tensor");
  m.def(
      "paged_prefill_attention(Tensor q, Tensor kv, Tensor block_tables, Tensor lengths, "
      "Tensor query_starts, float? scale=None, float soft_cap=0.0, int window=0) -> Tensor");

  m.def(
      "sample(Tensor(a!) logits, Tensor positions, Tensor seeds, Tensor? sequences=None, "
      "Tensor? temperature=None, Tensor? top_k=None, Tensor? top_p=None, Tensor? min_p=None, "
      "Tensor? presence_penalty=None, Tensor? frequency_penalty=None, "
      "Tensor? repetition_penalty=None, Tensor? count_starts=None, Tensor? count_ids=None, "
      "Tensor? counts=None, Tensor? bias_starts=None, Tensor? bias_ids=None, Tensor? biases=None, "
      "Tensor? mask=None, int num_top_logprobs=-1) -> (Tensor, Tensor, Tensor, Tensor)");
}

MLC_NATIVE_OPS_IMPL(CompositeExplicitAutograd, m) {
  m.impl("new_kv_pages", TORCH_BOX(&mlc_native::ops::outputs::NewKvPages));
}

MLC_NATIVE_OPS_IMPL(Meta, m) {
  namespace outputs = mlc_native::ops::outputs;
  m.impl("embedding", TORCH_BOX(&outputs::Embedding));
  m.impl("rms_norm", TORCH_BOX(&outputs::RmsNorm));
  m.impl("add_rms_norm", TORCH_BOX(&outputs::AddRmsNorm));
  m.impl("gated_activation", TORCH_BOX(&outputs::GatedActivation));
  m.impl("soft_cap_", TORCH_BOX(&outputs::SoftCap));
  m.impl("unpack_weight", TORCH_BOX(&outputs::UnpackWeight));
  m.impl("linear", TORCH_BOX(&outputs::Linear));
  m.impl("moe", TORCH_BOX(&mlc_native::ops::Moe<nullptr>));
  m.impl("read_kv", TORCH_BOX(&outputs::ReadKv));
  m.impl("qk_rope_write_kv", TORCH_BOX(&outputs::QkRopeWriteKv));
  m.impl("copy_pages_", TORCH_BOX(&outputs::CopyPages));
  m.impl("paged_decode_attention", TORCH_BOX(&outputs::PagedDecodeAttention));
  m.impl("paged_prefill_attention", TORCH_BOX(&outputs::PagedPrefillAttention));
  m.impl("sample", TORCH_BOX(&mlc_native::ops::Sample<nullptr>));
}

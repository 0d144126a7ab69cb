"""The parts of `workloads.fsdp_vlm`: a tiny vision-language model, its made-up captions, its training under FSDP2."""

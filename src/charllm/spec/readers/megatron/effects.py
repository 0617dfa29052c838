"""What each flag of Megatron-LM and its descendants does to seconds, watts and memory.

Gathered from the argument parsers of NVIDIA/Megatron-LM (2019 to 2026), microsoft/Megatron-DeepSpeed,
bigscience-workshop/Megatron-DeepSpeed, alibaba/Pai-Megatron-Patch, alibaba/Megatron-LLaMA, bigcode-project/Megatron-LM,
epfLLM/Megatron-LLM, ROCm/Megatron-LM, swiss-ai/Megatron-LM and databricks/megablocks.
"""

ALIASES = {
    "--model-parallel-size": "--tensor-model-parallel-size",
    "--batch-size": "--micro-batch-size",
    "--intermediate-size": "--ffn-hidden-size",
    "--moe-expert-parallel-size": "--expert-model-parallel-size",
    "--topk": "--moe-router-topk",
    "--moe-topk": "--moe-router-topk",
    "--moe-top-k": "--moe-router-topk",
    "--moe-num-experts": "--num-experts",
    "--num-moe-experts": "--num-experts",
    "--num-experts-switch": "--num-experts",
    "--moe-expert-model-parallelism": "--megablocks-expert-parallelism",
    "--qk-nope-head-dim": "--qk-head-dim",
    "--qk-rope-head-dim": "--qk-pos-emb-head-dim",
    "--shared-moe-ffn-hidden-size": "--moe-shared-expert-intermediate-size",
    "--no-tie-embed-logits": "--untie-embeddings-and-output-weights",
    "--use-rms-norm": "--rms-norm",
    "--RMSNorm": "--rms-norm",
    "--num-attention-heads-kv": "--num-key-value-heads",
    "--n-head-kv": "--num-key-value-heads",
    "--use-custom-fsdp": "--use-megatron-fsdp",
    "--use-flash-attn-v1": "--use-flash-attn",
    "--use-flash-attn-v2": "--use-flash-attn",
    "--use-flash-attn-triton": "--use-flash-attn",
    "--use-flash-attn-builder": "--use-flash-attn",
    "--use-alibi-position-embeddings": "--use-alibi-mask",
    "--use-llama2-rotary-position-embeddings": "--use-rotary-position-embeddings",
    "--use-mistral-rotary-position-embeddings": "--use-rotary-position-embeddings",
    "--sliding-window-size": "--sliding-window",
    "--num-layers-in-first-pipeline-stage": "--decoder-first-pipeline-num-layers",
    "--num-layers-in-last-pipeline-stage": "--decoder-last-pipeline-num-layers",
    "--hybrid-layer-pattern": "--hybrid-override-pattern",
    "--moe-train-capacity-factor": "--moe-expert-capacity-factor",
    "--distribute-checkpointed-activations": "--distribute-saved-activations",
    "--activations-checkpoint-num-layers": "--recompute-num-layers",
    "--overlapped-distributed-optimizer": "--use-distributed-optimizer",
    "--encoder-num-layers": "--num-layers",
    "--encoder-seq-length": "--seq-length",
    "--num-attention-head": "--num-attention-heads",
    "--fp8-param": "--fp8-param-gather",
    "--moe-capacity-factor": "--moe-expert-capacity-factor",
    "--use-fused-sdpa": "--use-flash-attn",
    "--grad-reduce-in-fp32": "--accumulate-allreduce-grads-in-fp32",
}
"""Other spellings of a flag, of other years and other code bases."""

USED = frozenset(
    """
    --num-layers --hidden-size --ffn-hidden-size --num-attention-heads --kv-channels --group-query-attention
    --num-query-groups --num-key-value-heads --attention-head-type --seq-length --max-position-embeddings
    --position-embedding-type --use-rotary-position-embeddings --use-alibi-mask --no-position-embedding
    --vocab-size --padded-vocab-size --pad-vocab-size-to --make-vocab-size-divisible-by --tokenizer-type
    --tokenizer-model --tokenizer-name-or-path --patch-tokenizer-type --extra-vocab-size --vocab-extra-ids --vocab-file
    --swiglu --quick-geglu --squared-relu --glu-activation --normalization --rms-norm --disable-bias-linear
    --add-qkv-bias --add-bias-linear --use-bias --untie-embeddings-and-output-weights --hidden-dropout --qk-layernorm --qk-l2-norm
    --multi-latent-attention --q-lora-rank --kv-lora-rank --qk-head-dim --qk-pos-emb-head-dim --v-head-dim
    --window-size --window-attn-skip-freq --sliding-window --softmax-type --parallel-attn --mtp-num-layers
    --num-experts --moe-router-topk --moe-ffn-hidden-size --moe-shared-expert-intermediate-size --num-shared-experts
    --enable-shared-expert --moe-layer-freq --expert-interval --moe-router-num-groups --moe-router-group-topk
    --moe-expert-capacity-factor --moe-grouped-gemm --mlp-type --disable-moe-token-dropping --moe-latent-size
    --moe-token-dispatcher-type --moe-enable-deepep --moe-flex-dispatcher-backend --moe-permute-fusion
    --moe-router-fusion --moe-router-force-load-balancing --enable-expert-tensor-parallelism --moe-layer-recompute
    --megablocks-expert-parallelism
    --tensor-model-parallel-size --pipeline-model-parallel-size --virtual-pipeline-model-parallel-size
    --num-layers-per-virtual-pipeline-stage --num-virtual-stages-per-pipeline-rank --context-parallel-size
    --expert-model-parallel-size --expert-tensor-parallel-size --sequence-parallel --ds-sequence-parallel-size
    --cp-comm-type --decoder-first-pipeline-num-layers --decoder-last-pipeline-num-layers
    --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split --pipeline-model-parallel-layout
    --pp-partition-method --standalone-embedding-stage --no-pipeline-parallel --use-tp-pp-dp-mapping
    --use-distributed-optimizer --use-torch-fsdp2 --use-megatron-fsdp --data-parallel-sharding-strategy
    --num-distributed-optimizer-instances --overlap-grad-reduce --overlap-param-gather --tp-comm-overlap
    --no-overlap-p2p-communication --overlap-moe-expert-parallel-comm --ddp-bucket-size --delay-grad-reduce
    --micro-batch-size --global-batch-size --bf16 --fp16 --fp8-format --fp8-hybrid --fp8-e4m3 --fp8-recipe
    --fp4-format --fp4-recipe --fp8-param-gather --num-layers-at-end-in-bf16 --first-last-layers-bf16
    --num-layers-at-start-in-bf16 --grad-reduce-in-bf16 --accumulate-allreduce-grads-in-fp32 --fp32-allreduce
    --recompute-activations --recompute-granularity --recompute-method --recompute-num-layers --recompute-modules
    --checkpoint-activations --activations-checkpoint-method --checkpoint-num-layers
    --deepspeed-activation-checkpointing --optimizer --clip-grad --exp-avg-dtype --exp-avg-sq-dtype
    --main-grads-dtype --use-precision-aware-optimizer
    --attention-backend --use-flash-attn --transformer-impl --use-mcore-models --use-legacy-models --no-masked-softmax-fusion
    --cross-entropy-loss-fusion --no-gradient-accumulation-fusion --no-bias-swiglu-fusion --no-bias-gelu-fusion
    --no-rope-fusion --apply-rope-fusion --no-persist-layer-norm --enable-cuda-graph --external-cuda-graph --cuda-graph-impl
    --cuda-graph-scope --cuda-graph-modules
    --deepspeed --deepspeed-config --zero-stage --deepscale --deepscale-config
    --gradient-accumulation-steps --nproc-per-node --nnodes --num-gpus --num-nodes --world-size --sft --no-async-tensor-model-parallel-allreduce
    --hybrid-override-pattern --is-hybrid-model --mamba-num-heads --mamba-head-dim --mamba-state-dim --mamba-num-groups
    --use-checkpoint-args --distributed-backend
    """.split()
)
"""Flags that the reader makes use of; some of them only beside others, such as --moe-router-topk with experts."""

NO_EFFECT = frozenset(
    """
    --DDP-impl --abort-on-unmet-fused-kernel-constraints --adaptive-seq-len --add-skipping --adjust-word-embedding-init
    --allow-ambiguous-pad-tokens --aml-data-download-path --apply-wd-to-qk-layernorm --async-save
    --attention-softmax-in-fp32 --auto-detect-ckpt-format --barrier-with-L1-time --blend-sample-in-corpus
    --bootstrap-iters --cache-dir --calc-ft-timeouts --calculate-per-token-loss --check-for-large-grads
    --check-for-nan-in-loss-and-grad --check-for-spiky-loss --no-check-for-nan-in-loss-and-grad
    --checkpoint-dir-name --classes-fraction --codecarbon-dir --config-logger-dir --constant-lr
    --create-moe-param-group --curr-iteration --data-args-path --data-cache-path --data-dir --data-epochs
    --data-file-list --data-impl --data-loader --data-parallel-random-init --data-path --data-path2
    --data-per-class-fraction --data-type --dataset --dataset-config --decoupled-lr --decoupled-min-lr
    --decrease-batch-size-if-needed --deep-init --disable-bf16-reduced-precision-matmul --disable-doc-shuffling
    --disable-gloo-process-groups --disable-moe-top2-2nd-expert-sampling --disable-msc --disable-straggler-on-startup
    --dist-ckpt-format --dist-ckpt-strictness --dist-ckpt-workers --dist-ckpt-optim-fully-reshardable
    --distributed-checkpointing --distributed-timeout --distributed-timeout-minutes
    --distributed-timeout-seconds-after-init --do-norm-bias-weight-decay --dump-param-to-param-group-map
    --embedding-init-method-std --embedding-path --empty-unused-memory-level --enable-experimental --enable-ft-package
    --enable-msc --enable-one-logger --end-weight-decay --eod-mask-loss --epochs --exit-duration-in-mins
    --exit-interval --exit-on-missing-checkpoint --exit-signal-handler --exit-signal --finetune --finetune-data-files
    --finetune-data-split --finetune-hf-dataset --flash-decode --fp16-lm-cross-entropy --fp8-amax-compute-algo
    --fp8-amax-history-len --fp8-interval --fp8-margin --fp8-manual-mode --fragment-fim-rate
    --ft-num-warmup-iters --genfile --head-lr-mult --high-priority-stream-groups --hysteresis --image-folder
    --init-method-std --init-method-xavier-uniform --init-model-with-meta-device --initial-loss-scale
    --iterations-to-skip --iter-per-epoch --job-name --json-keys --keep-last --kill-switch-file --kill-switch-path
    --layernorm-epsilon --layernorm-init --lazy-mpu-init --legacy-tokenizer --load --load-iters
    --load-main-params-from-ckpt --load-tag --local-rank --local_rank --loose-json --loss-scale --loss-scale-window --lr
    --main-process-ip --manual-gc --manual-gc-interval --no-manual-gc-eval --mask-factor --mask-prob --mask-type
    --max-padding-length --merge-file --merges-file --metrics --micro-bs-multiplier --mid-level-dataset-surplus
    --min-loss-scale --min-lr --min-scale --mmap-warmup --mock-data --model-name --model-type --moe-aux-loss-coeff
    --moe-eval-capacity-factor --moe-input-jitter-eps --moe-loss-coeff --moe-min-capacity --moe-per-layer-logging
    --moe-router-bias-update-rate --moe-router-dtype --moe-router-enable-expert-bias
    --moe-router-load-balancing-type --moe-router-pre-softmax --moe-router-score-function
    --moe-router-topk-scaling-factor --moe-token-drop-policy --moe-use-upcycling --moe-upcycling-granularity
    --moe-z-loss-coeff --moe-router-topk-limited-devices --mrope-section --mscale --mscale-all-dim
    --mtp-loss-scaling-factor --multiprocessing-context --nccl-communicator-config-path
    --no-barrier-with-level-1-timing --no-bias-dropout-fusion --no-contiguous-buffers-in-local-ddp
    --no-create-attention-mask-in-dataloader --no-data-sharding --no-initialization --no-load-lr-state
    --no-load-optim --no-load-rng --no-log-learnig-rate-to-tensorboard --no-log-loss-scale-to-tensorboard
    --no-mmap-bin-files --no-new-tokens --no-one-logger --no-query-key-layer-scaling --apply-query-key-layer-scaling
    --no-save-optim --no-save-rng --no-scaled-init --no-seq-len-plus-one-tokens --no-shared-fs --num-shared-fs
    --no-strict-fsdp-dtensor-load --no-use-tokenizer-model-from-checkpoint-args --no-ckpt-fully-parallel-save
    --no-gradient-reduce-div-fusion --no-align-grad-reduce --no-align-param-gather --no-paired-barrier
    --no-yarn-correction-range-round-to-int --norm-epsilon --num-channels --num-classes --num-dataset-builder-threads
    --num-workers --num-workers-per-gpu --object-storage-cache-path --online-evaluation-config --onnx-safe
    --out-seq-length --override-lr-scheduler --override-opt-param-scheduler --override-ckpt-iteration
    --per-dataset-sequences-path --per-split-data-args-path --persistent-save-interval --pretrained-checkpoint
    --profile --use-pytorch-profiler --pytorch-profiler-collect-shapes --record-memory-history
    --memory-snapshot-path --rampup-batch-size --renormalize-blend-weights --repeated-dataloader --replication
    --replication-factor --replication-jump --rerun-mode --reset-iteration --reset-position-ids
    --results-path --return-data-index --reweight-loss-based-on-position-frequency --rotary-base
    --rotary-interleaved --rotary-percent --rotary-scaling-factor --rotary-seq-len-interpolation-factor --rope-theta
    --rope-scaling-factor --rope-scaling --rope-type --run-id --save --save-interval --save-retain-interval --seed
    --sgd-momentum --short-seq-prob --shuffle --shuffle-sample-in-corpus --skip-iters --skip-train-iteration-range
    --source-seq-len --split --start-weight-decay --structured-logs --structured-logs-dir
    --sync-tp-duplicated-parameters --synchronize-each-layer --target-seq-len --te-rng-tracker --test-data
    --test-data-path --test-mode --test-weighted-split-paths --test-weighted-split-paths-path --text-key
    --timing-log-level --timing-log-option --tokenizer-file --tokenizer-path --tp-comm-bootstrap-backend
    --tp-comm-overlap-cfg --train-data --train-data-exact-num-epochs --train-data-path --train-iters --train-mode
    --train-samples --train-sync-interval --train-tokens --train-weighted-split-paths
    --train-weighted-split-paths-path --transformer-timers --trigger-path --trust-remote-code
    --universal-checkpoint --use-checkpoint-lr-scheduler --use-checkpoint-opt-param-scheduler
    --use-contiguous-buffers-in-ddp --use-cpu-initialization --use-dataset-only --use-dist-ckpt
    --use-mp-args-from-checkpoint-args --use-one-sent-docs --use-persistent-ckpt-worker --use-pin-memory
    --use-ring-exchange-p2p --use-rope-scaling --use-te --use-tokenizer-model-from-checkpoint-args --val-data
    --valid-data --valid-data-path --valid-num-workers --valid-weighted-split-paths
    --valid-weighted-split-paths-path --verbosity --verify-checkpoint --version --vocab --vocab-extra-ids-list
    --warmup --weight-decay --weight-decay-incr-style --word-embedding-init-std --z-loss-strength --z-loss-weight
    --use-mpi --ds-inference --disable-mem-efficient-ln --profile-backward --fix-position-emb-redundant-alloc
    --use-bnb --log-level --log-level-replica --expert-data-parallel --data-folder --logging-level --logging-dir
    --tensorboard-dir --name --tag --exp-name --overwrite-checkpoint --zero-contigious-gradients
    --zero-reduce-scatter --zero-reduce-bucket-size --zero-allgather-bucket-size --contigious-checkpointing
    --no-clone-scatter-output-in-embedding --keep-fp8-transpose-cache 
    --hetereogenous-dist-checkpoint --eval-micro-batch-size --eval-global-batch-size --eval-batch-size --full-validation
    --non-persistent-ckpt-type --non-persistent-save-interval --non-persistent-global-ckpt-dir --start-eval-at-iter
    --non-persistent-local-ckpt-algo --non-persistent-local-ckpt-dir --make-deterministic --ignore-unknown-args
    --text-generate-input-file --text-generate-output-file --text-generate-gt-file --temperature --top-k --top-p
    --greedy --generation-length --repetition-penalty --input-len --apply-residual-connection-post-layernorm
    --ds-fused-adam --log-energy --use-gloo-process-groups --moe-expert-int-list
    --spiky-loss-factor --pad-token-id --attention-dropout --apply-layernorm-1p
    --rotary-base-value --adlr-autoresume --adlr-autoresume-interval --no-scatter-gather-tensors-in-pipeline
    --align-grad-reduce --align-param-gather --gradient-accumulation-fusion --bias-dropout-fusion
    --bias-swiglu-fusion --masked-softmax-fusion --persist-layer-norm --check-weight-hash-across-dp-replicas-interval
    --norm-target-loss --reset-progress --transformer-type --sample-input-file --sample-output-file
    --scalar-loss-mask --variable-seq-lengths --use-wandb --result-dir --create-tensorboard-logger
    --lazy-loader --resume-dataloader --step-batch-size-schedule --moe-loss-weight --export-force-local-attention
    --use-fused-sdpa-with-recompute --use-fused-rmsnorm --use-torch-compile --use-torch-compiled-autograd
    --compiled-autograd-fallback-mode --use-fast-softmax --cache-fp8-weight --cache-fp8-weight-fwd --check-tp-norm
    --batch-sched-samples --scheduler-batch-size --stop-after-num-samples --loss-on-targets-only --nvtx-ranges
    --dataset-provider --model-provider --debug --causal-lm --job-name --max-tokens-to-oom --no-final-layernorm
    --master-addr --master-port --master_addr --node-rank --rdzv-id --rdzv-backend --rdzv-endpoint --max-restarts
    --tee --launcher --hostfile --include --exclude --no-local-rank --use-env
    """.split()
)
"""Data, logging, checkpoints, learning rates, seeds: nothing that a step's time, power or memory depends on."""

NO_EFFECT_FAMILIES = (
    "--wandb-", "--log-", "--tensorboard-", "--lr-", "--adam-", "--ckpt-", "--dist-ckpt-", "--one-logger-",
    "--inprocess-", "--inference-", "--profile-", "--straggler-", "--dataloader-", "--fim-", "--eval-", "--app-tag-",
    "--tiktoken-", "--tokenizer-", "--yarn-", "--save-", "--error-injection-", "--retriever-", "--ict-", "--indexer-",
    "--train-", "--valid-", "--test-", "--otel-", "--rerun-", "--flight-recorder-", "--moe-routing-trace-", "--goldfish-",
    "--export-", "--metrics-", "--async-ckpt-", "--mlflow-", "--comet-", "--kd-", "--prompt-", "--rope-", "--rotary-", "--sgd-", "--clearml-",
)  # fmt: skip
"""Beginnings of names that all belong to such a group."""

SMALL = {
    "--embed-layernorm": "the layer norm after the embedding",
    "--attention-softmax-in-fp32-unfused": "a softmax in fp32",
    "--defer-embedding-wgrad-compute": "deferring the weight gradient of the embedding",
    "--wgrad-deferral-limit": "deferring the weight gradient of the embedding",
    "--reset-attention-mask": "attention that stops at the ends of documents",
    "--use-nccl-ub": "registered NCCL buffers",
    "--fsdp-double-buffer": "double buffers of FSDP",
    "--use-sharp": "reduction in the fabric's switches",
    "--sharp-enabled-group": "reduction in the fabric's switches",
    "--overlap-param-gather-with-optimizer-step": "overlap of the gather with the optimizer step",
    "--overlap-p2p-communication-warmup-flush": "overlap in warm-up and flush of the pipeline",
    "--microbatch-group-size-per-virtual-pipeline-stage": "the group size of the interleaved schedule",
    "--delay-wgrad-compute": "delayed weight gradients",
    "--moe-shared-expert-overlap": "overlap of the shared experts with the exchange",
    "--moe-pad-expert-input-to-capacity": "padding of experts to their capacity",
    "--moe-router-padding-for-fp8": "padding of tokens to a multiple of 16",
    "--moe-router-padding-for-quantization": "padding of tokens to a multiple of 16",
    "--moe-use-legacy-grouped-gemm": "the older grouped GEMM",
    "--moe-extended-tp": "experts cut over tensor ranks",
    "--moe-input-feature-slicing": "slicing of expert inputs",
    "--moe-apply-probs-on-input": "probabilities applied before the experts",
    "--moe-deepep-num-sms": "processors taken by DeepEP",
    "--moe-hybridep-num-sms": "processors taken by HybridEP",
    "--disable-tp-comm-overlap-ag": "which collectives overlap",
    "--disable-tp-comm-overlap-rs": "which collectives overlap",
    "--disable-tp-comm-bulk-dgrad": "which collectives overlap",
    "--disable-tp-comm-bulk-wgrad": "which collectives overlap",
    "--disable-tp-comm-split-ag": "which collectives overlap",
    "--disable-tp-comm-split-rs": "which collectives overlap",
    "--tp-comm-overlap-rs-dgrad": "which collectives overlap",
    "--ddp-num-buckets": "the number of gradient buckets",
    "--ddp-pad-buckets-for-high-nccl-busbw": "padding of gradient buckets",
    "--ddp-average-in-collective": "averaging in the collective",
    "--suggested-communication-unit-size": "the size of FSDP's communication",
    "--torch-fsdp2-no-reshard-after-forward": "keeping gathered weights until backward",
    "--cuda-graph-warmup-steps": "warm-up of CUDA graphs",
    "--no-fp8-wgrad": "weight gradients in 16 bits",
    "--fp8-wgrad": "weight gradients in 8 bits",
    "--reuse-grad-buf-for-mxfp8-param-ag": "reuse of the gradient buffer for the gather",
    "--fp4-param-gather": "4-bit weights in the gather",
    "--cross-entropy-fusion-impl": "which fused cross entropy",
    "--use-te-activation-func": "which activation kernel",
    "--use-fused-weighted-squared-relu": "which activation kernel",
    "--openai-gelu": "which GELU",
    "--distribute-saved-activations": "kept activations spread over tensor ranks",
    "--main-params-dtype": "the format of master weights",
    "--store-param-remainders": "the format of master weights",
    "--fp16-main-params": "the format of master weights",
    "--embedding-weights-in-fp32": "an embedding in fp32",
    "--disable-bias-attn-fc": "a bias that is left out",
    "--disable-bias-linear-fc": "a bias that is left out",
    "--memory-centric-tiled-linear": "tiled linear layers",
    "--tile-factor": "tiled linear layers",
    "--split-transformers": "split transformer layers",
    "--no-delay-grad-reduce": "when gradients are reduced",
    "--delay-param-gather": "when weights are gathered",
    "--mla-down-proj-fusion": "a fused down projection",
    "--moe-combine-bwd-dtype": "the format of the exchange",
    "--qk-clip": "clipping of query and key weights",
    "--activation-func-clamp-value": "clamped activations",
    "--glu-linear-offset": "an offset in the gate",
    "--enable-gpt-oss": "the gate of gpt-oss",
    "--post-layer-norm": "layer norms after each block",
    "--use-post-ln": "layer norms after each block",
    "--use-normhead": "a normalised output layer",
    "--lima-dropout": "dropout that grows with depth",
    "--input-embeddings-multiplier": "a scaled embedding",
    "--bert-no-binary-head": "the binary head",
    "--no-rope-freq": "layers without positions",
    "--attention-output-gate": "a gate on attention",
    "--fused-residual-rmsnorm": "a fused residual and norm",
    "--partition-activations": "kept activations spread over tensor ranks",
    "--use-tutel": "Tutel's expert kernels",
    "--deterministic-mode": "deterministic kernels",
    "--random-ltd": "tokens that are left out of layers",
    "--data-efficiency-curriculum-learning": "short sequences at the start of training",
    "--curriculum-learning": "short sequences at the start of training",
    "--overlap-dispatch-backward-with-experts-wgrad": "overlap of the exchange with weight gradients",
    "--high-priority-a2a-comm-stream": "priority of the exchange",
}  # fmt: skip
"""Flags that change the result a little and are not modelled: a warning says so."""

UNMODELLED = {
    "--optimizer-cpu-offload": "an optimizer on the CPU",
    "--optimizer-offload-fraction": "an optimizer on the CPU",
    "--optimizer-offload-policy": "an optimizer on the CPU",
    "--cpu-optimizer": "an optimizer on the CPU",
    "--cpu-torch-adam": "an optimizer on the CPU",
    "--cpu-offload": "activations on the CPU",
    "--cpu-offloading": "activations on the CPU",
    "--cpu-offloading-num-layers": "activations on the CPU",
    "--checkpoint-in-cpu": "activations on the CPU",
    "--fine-grained-activation-offloading": "activations on the CPU",
    "--moe-paged-stash": "activations on the CPU",
    "--remote-device": "weights on the CPU or on a disk",
    "--fp32-residual-connection": "a residual stream in fp32",
    "--use-bnb-optimizer": "an 8-bit optimizer",
    "--heterogeneous-layers-config-path": "layers of different shapes",
    "--heterogeneous-layers-config-encoded-json": "layers of different shapes",
    "--yaml-cfg": "arguments in a YAML file",
    "--linear-attention-freq": "linear attention in some layers",
    "--linear-attention-type": "linear attention in some layers",
    "--experimental-attention-variant": "another kind of attention",
    "--use-kitchen-attention": "another kind of attention",
    "--hierarchical-context-parallel-sizes": "hierarchical context parallelism",
    "--hybrid-context-parallel": "context parallelism that changes with the sequence",
    "--encoder-tensor-model-parallel-size": "an encoder with its own parallelism",
    "--encoder-pipeline-model-parallel-size": "an encoder with its own parallelism",
    "--pipeline-model-parallel-split-rank": "an encoder beside the decoder",
    "--decoder-num-layers": "an encoder beside the decoder",
    "--decoder-seq-length": "an encoder beside the decoder",
    "--retro-add-retriever": "retrieval (RETRO)",
    "--vision-pretraining": "a vision model",
    "--vision-model-type": "a vision tower",
    "--vision-tower": "a vision tower",
    "--language-model-type": "a vision tower",
    "--freeze-LM": "frozen weights",
    "--freeze-ViT": "frozen weights",
    "--freeze-llm": "frozen weights",
    "--freeze-clip-vision-tower": "frozen weights",
    "--img-h": "a vision tower",
    "--img-w": "a vision tower",
    "--patch-dim": "a vision tower",
    "--image-size": "a vision tower",
    "--perform-rl-step": "reinforcement learning",
    "--task": "a downstream task",
    "--task-list": "a downstream task",
    "--spec": "another specification of the layers",
    "--hybrid-attention-ratio": "a hybrid whose layers are not listed",
    "--hybrid-mlp-ratio": "a hybrid whose layers are not listed",
    "--pixel-shuffle": "a vision tower",
    "--disable-vision-class-token": "a vision tower",
    "--image-tag-type": "a vision tower",
    "--max-num-tiles": "a vision tower",
    "--use-tiling": "a vision tower",
    "--synchronizer": "training with few synchronisations",
    "--post-self-attn-layernorm": "norms after each block",
    "--post-mlp-layernorm": "norms after each block",
    "--kd": "distillation from a teacher",
    "--mos": "distillation from a teacher",
    "--load-teacher": "distillation from a teacher",
    "--num-layers-teacher": "distillation from a teacher",
    "--export-kd-teacher-load": "distillation from a teacher",
    "--export-kd-cfg": "distillation from a teacher",
    "--teacher-model-config": "distillation from a teacher",
    "--distillation": "distillation from a teacher",
    "--flextron": "nested models",
    "--enable-zbh1-pipeline": "another pipeline schedule",
    "--enable-zero-bubble": "another pipeline schedule",
    "--enable-vocab-parallel": "a vocabulary cut over pipeline stages",
    "--zero-bubble-v-schedule": "another pipeline schedule",
    "--zero-bubble-v-schedule-mem-setup": "another pipeline schedule",
    "--ds-sequence-parallel-fpdt": "attention in chunks on the CPU",
    "--enable-mhc-connections": "hyper connections",
    "--skip-train": "no training",
    "--inference": "no training",
    "--eval-only": "no training",
    "--xielu": "another activation",
    "--xiprelu": "another activation",
    "--xiprelup": "another activation",
    "--gtp-weight-remat-size": "generalised tensor parallelism",
    "--use-mics": "sharding over part of the ranks (MiCS)",
    "--lora-rank": "adapters",
    "--rollout-batch-size": "reinforcement learning",
    "--rollout-num-gpus": "reinforcement learning",
    "--advantage-estimator": "reinforcement learning",
    "--use-mup-embedding": "another model",
    "--batch-invariant-mode": "kernels that do not depend on the batch",
    "--tensor-parallel-num-weight-shards": "weights sharded over tensor ranks",
}  # fmt: skip
"""Flags that change the result and are not modelled: refused unless the user allows it."""

UNMODELLED_FAMILIES = {
    "--retro-": "retrieval (RETRO)",
    "--dino-": "a vision model",
    "--swin-": "a vision model",
    "--vision-": "a vision tower",
    "--grpo-": "reinforcement learning",
    "--rl-": "reinforcement learning",
    "--langrl-": "reinforcement learning",
    "--rollout-": "reinforcement learning",
    "--biencoder-": "a retriever",
    "--compression-": "compression",
}

DEPRECATED_AFTER_2022 = frozenset(
    """
    --model-parallel-size --checkpoint-activations --checkpoint-num-layers --activations-checkpoint-method
    --activations-checkpoint-num-layers --distribute-checkpointed-activations --DDP-impl --batch-size
    --no-contiguous-buffers-in-local-ddp --scaled-masked-softmax-fusion --fp32-allreduce
    --use-checkpoint-lr-scheduler --override-lr-scheduler --scaled-upper-triang-masked-softmax-fusion
    """.split()
)
"""Flags that NVIDIA's parser lost before Transformer Engine and FlashAttention were what attention ran on."""


def is_without_effect(flag: str) -> bool:
    """Say whether a flag is known to change nothing that is predicted."""
    return flag in NO_EFFECT or flag.startswith(NO_EFFECT_FAMILIES)


def why_unmodelled(flag: str) -> str:
    """Return what a flag asks for that is not modelled; empty when it asks for no such thing."""
    family = next((reason for start, reason in UNMODELLED_FAMILIES.items() if flag.startswith(start)), "")
    return UNMODELLED.get(flag, family)


def known_flags() -> list[str]:
    """List every flag that is known by its name, for hints at typing errors."""
    return sorted({*ALIASES, *USED, *NO_EFFECT, *SMALL, *UNMODELLED})

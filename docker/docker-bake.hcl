# The one build entry:  docker buildx bake -f docker/docker-bake.hcl [gpu | lab]
# Set SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) and SOURCE_REVISION=$(git rev-parse HEAD) to stamp an image with its
# commit. The same inputs are verified at each build; the bytes are not promised to be the same: apt's packages drift.

variable "SOURCE_DATE_EPOCH" { default = null }
variable "SOURCE_REVISION" { default = "" }
variable "FASTFILL_LAB_TORCH_INDEX" { default = "" }

# BEGIN PINS: `fastfill pins render` writes this from docker/stacks; edit the stack file instead.
target "_pins" {
  tags = ["fastfill:sglang-0.5.16-4d03fffc9da6"]
  args = {
    BASE_IMAGE = "the base image has no digest yet: run `fastfill pins resolve`"
    BASE_DIGEST = ""
    STACK = "sglang-0.5.16"
    STACK_DIGEST = "4d03fffc9da63e8e26cf59292174d96e5cd8bb3fd7aa92e299297e3f02f330e7"
    SGLANG_VERSION = "0.5.16"
    AITER_REPOSITORY = "https://github.com/ROCm/aiter.git"
    AITER_COMMIT = "c16d44b93a528b2a4bfd6d8d3409116d465872a9"
    AITER_VERSION = "0.1.19.post2+gc16d44b93a"
    AITER_SUBMODULE = "3rdparty/composable_kernel"
    AITER_SUBMODULE_REPOSITORY = "https://github.com/ROCm/composable_kernel.git"
    AITER_SUBMODULE_COMMIT = "f33252cebe5a52362ec1ee12c124dde7800dda3a"
  }
}
# END PINS

group "default" { targets = ["gpu"] }

target "_common" {
  context = "."
  args = {
    SOURCE_DATE_EPOCH = SOURCE_DATE_EPOCH
    SOURCE_REVISION   = SOURCE_REVISION
  }
}

# The server for MI350X and MI355X.
target "gpu" {
  inherits   = ["_common", "_pins"]
  dockerfile = "docker/Dockerfile"
}

# The lab: no GPU. It shares the steps that patch SGLang and install fastfill.
target "lab" {
  inherits   = ["_common"]
  dockerfile = "docker/lab.Dockerfile"
  tags       = ["fastfill-lab:latest"]
  args       = { FASTFILL_LAB_TORCH_INDEX = FASTFILL_LAB_TORCH_INDEX }
}

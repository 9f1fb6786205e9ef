package guest

// HoldFamily is an address family that no kernel has (Linux has some fifty). Where
// the kernel of a sandbox can hold processes back at a restore, the guest program,
// and nobody else, may open one socket of this family (SOCK_STREAM, protocol 0) and
// keeps it open. From then on every restore of the sandbox finds all processes but
// the guest program standing still until it writes HoldRelease to the socket or
// closes it. What it starts meanwhile runs. Where the kernel cannot hold anything
// back, the socket fails with EAFNOSUPPORT.
const HoldFamily = 0x70

// HoldRelease is what the guest program writes to let every process go on.
const HoldRelease = "release"

package control

import (
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pandastack/pandastack/api"
)

// Bounds of what a create may carry.
const (
	maxLabels    = 64
	maxLabelKey  = 128
	maxMetadata  = 64 << 10
	maxEnv       = 64 << 10
	maxName      = 256
	maxCPU       = 256
	maxMemoryMB  = 1 << 20
	maxDiskMB    = 16 << 20
	minMemoryMB  = 16
	minDiskMB    = 16
	smallestPart = 0.01 // of a CPU
)

func (s *Service) checkCreate(req api.CreateSandbox) error {
	for _, err := range []error{
		unsupported(req), checkName("template", req.Template), checkName("driver", req.Driver),
		s.checkTTL(req.TTLSeconds), checkMetadata(req.Metadata), checkEnv(req.Env), checkSizes(req),
		checkCheckpoints(req.Checkpoints),
	} {
		if err != nil {
			return err
		}
	}
	if req.Persistent && req.TTLSeconds != nil {
		return invalid("ttl_seconds", "a persistent sandbox has no ttl_seconds; give one of the two")
	}
	return nil
}

// unsupported refuses what the API has a name for and this server does not do.
func unsupported(req api.CreateSandbox) error {
	for field, given := range map[string]bool{
		"volumes": len(req.Volumes) > 0,
	} {
		if given {
			return api.Errorf(api.CodeUnsupported, "%s is not supported by this server", field).
				With("field", field).WithHint("Leave the field out.")
		}
	}
	return nil
}

func checkName(field, name string) error {
	if len(name) > maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return invalid(field, "%s must be at most %d bytes of text on one line", field, maxName)
	}
	return nil
}

func (s *Service) checkTTL(ttl *int) error {
	if ttl != nil && (*ttl < 1 || *ttl > s.limits.MaxTTL) {
		return invalid("ttl_seconds", "ttl_seconds must be between 1 and %d", s.limits.MaxTTL)
	}
	return nil
}

func checkMetadata(m map[string]string) error {
	if len(m) > maxLabels {
		return api.Errorf(api.CodeTooLarge, "metadata has %d labels and may have %d", len(m), maxLabels).With("field", "metadata")
	}
	size := 0
	for k, v := range m {
		size += len(k) + len(v)
		if k == "" || len(k) > maxLabelKey {
			return invalid("metadata", "the keys of metadata must have 1 to %d bytes", maxLabelKey)
		}
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return invalid("metadata", "metadata must be text in UTF-8")
		}
	}
	if size > maxMetadata {
		return api.Errorf(api.CodeTooLarge, "metadata has %d bytes and may have %d", size, maxMetadata).With("field", "metadata")
	}
	return nil
}

// checkEnv refuses what no environment can hold.
func checkEnv(env map[string]string) error {
	size := 0
	for k, v := range env {
		size += len(k) + len(v) + 2
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return invalid("env", "env has the name or value %.60q, which no environment can hold", k+"="+v)
		}
	}
	if size > maxEnv {
		return api.Errorf(api.CodeTooLarge, "env has %d bytes and may have %d", size, maxEnv).With("field", "env")
	}
	return nil
}

// checkSizes takes zero for the template's own size.
func checkSizes(req api.CreateSandbox) error {
	if c := req.CPU; c != 0 && !(c >= smallestPart && c <= maxCPU) || math.IsNaN(c) {
		return invalid("cpu", "cpu must be between %g and %d", smallestPart, maxCPU)
	}
	if m := req.MemoryMB; m != 0 && (m < minMemoryMB || m > maxMemoryMB) {
		return invalid("memory_mb", "memory_mb must be between %d and %d", minMemoryMB, maxMemoryMB)
	}
	if d := req.DiskMB; d != 0 && (d < minDiskMB || d > maxDiskMB) {
		return invalid("disk_mb", "disk_mb must be between %d and %d", minDiskMB, maxDiskMB)
	}
	return nil
}

package blob

import (
	"context"
	"time"
)

// AbortAbandoned is for tests, which cannot wait a day.
func (s *S3) AbortAbandoned(ctx context.Context, before time.Time) { s.abortAbandoned(ctx, before) }

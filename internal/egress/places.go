package egress

import "sync"

// fairShare is the part of what is left that a sandbox may hold when more than half
// is taken.
const fairShare = 16

// places are what all sandboxes share of something that is counted.
type places struct {
	each, all int // bounds of one sandbox, and of all

	mu    sync.Mutex
	taken int
}

// take gives one more place to a sandbox that holds some already. Whoever holds
// nothing gets one as long as there is any.
func (p *places) take(held int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := p.all - p.taken
	if held >= p.each || left == 0 || p.taken >= p.all/2 && held >= max(1, left/fairShare) {
		return false
	}
	p.taken++
	return true
}

func (p *places) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
}

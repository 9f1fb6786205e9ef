package control

// UnderWay is how many uses of a sandbox have not ended, for tests.
func (s *Service) UnderWay(id string) int {
	n, _ := s.uses.get(id)
	return n
}

package kernels

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Info describes a context.
type Info struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Cwd      string `json:"cwd"`
}

// Context is one interpreter with its state.
type Context struct {
	Info
	set  *Contexts
	lang *language
	env  map[string]string
	turn chan struct{} // holds one token: the right to execute
	gone chan struct{} // closed when it was deleted

	mu     sync.Mutex
	kernel *kernel // the last one; it may have ended
	count  int     // executions of that kernel
}

// Contexts is all contexts of a machine.
type Contexts struct {
	sys     System
	preload map[string][]string

	mu       sync.Mutex
	list     []*Context          // in order of creation
	defaults map[string]*Context // by language
}

// New makes an empty set. Preload names, by language, modules that a new kernel
// loads before its first code.
func New(sys System, preload map[string][]string) *Contexts {
	return &Contexts{sys: sys, preload: preload, defaults: map[string]*Context{}}
}

// Languages lists those whose programs are installed.
func (c *Contexts) Languages() []string {
	var out []string
	for i := range languages {
		if c.missing(&languages[i]) == "" {
			out = append(out, languages[i].name)
		}
	}
	return out
}

// missing gives the first program that a language lacks here.
func (c *Contexts) missing(l *language) string {
	for _, p := range l.needs {
		if !c.sys.Has(p) {
			return p
		}
	}
	return ""
}

// Create makes a context. Its kernel starts with the first code.
func (c *Contexts) Create(lang, cwd string, env map[string]string) (*Context, error) {
	l, err := c.language(lang)
	if err != nil {
		return nil, err
	}
	home := c.sys.Home()
	switch {
	case cwd == "":
		cwd = home
	case !filepath.IsAbs(cwd):
		cwd = filepath.Join(home, cwd)
	}
	if fi, err := os.Stat(cwd); err != nil || !fi.IsDir() {
		return nil, InvalidError(fmt.Sprintf("cwd %.200q is not a directory", cwd))
	}
	if err := checkEnv(env); err != nil {
		return nil, err
	}
	x := &Context{
		Info: Info{ID: newID(), Language: l.name, Cwd: cwd}, set: c, lang: l, env: maps.Clone(env),
		turn: make(chan struct{}, 1), gone: make(chan struct{}),
	}
	x.turn <- struct{}{}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.list) >= maxContexts {
		return nil, ErrTooMany
	}
	c.list = append(c.list, x)
	return x, nil
}

func (c *Contexts) language(name string) (*language, error) {
	l, ok := findLanguage(name)
	if !ok {
		return nil, InvalidError(fmt.Sprintf("there is no language %.60q", name))
	}
	if p := c.missing(l); p != "" {
		return nil, InvalidError(fmt.Sprintf("language %s needs the program %s, which this sandbox does not have", l.name, p))
	}
	return l, nil
}

func checkEnv(env map[string]string) error {
	for k, v := range env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return InvalidError(fmt.Sprintf("environment variable %.60q has an impossible name or value", k))
		}
	}
	return nil
}

// Shared gives the context that code of a language runs in which names no
// context, and makes it if need be.
func (c *Contexts) Shared(lang string) (*Context, error) {
	l, err := c.language(lang)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	x := c.defaults[l.name]
	c.mu.Unlock()
	if x != nil {
		return x, nil
	}
	made, err := c.Create(l.name, "", nil)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	if x = c.defaults[l.name]; x == nil {
		x, c.defaults[l.name] = made, made
	}
	c.mu.Unlock()
	if x != made {
		_ = c.Delete(made.ID) // another call was first
	}
	return x, nil
}

// Get finds a context.
func (c *Contexts) Get(id string) (*Context, error) {
	for _, x := range c.all() {
		if x.ID == id {
			return x, nil
		}
	}
	return nil, ErrNotFound
}

// List describes all contexts, oldest first.
func (c *Contexts) List() []Info {
	out := []Info{}
	for _, x := range c.all() {
		out = append(out, x.Info)
	}
	return out
}

func (c *Contexts) all() []*Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.list)
}

// Delete ends a context with what it runs.
func (c *Contexts) Delete(id string) error {
	c.mu.Lock()
	i := slices.IndexFunc(c.list, func(x *Context) bool { return x.ID == id })
	if i < 0 {
		c.mu.Unlock()
		return ErrNotFound
	}
	x := c.list[i]
	c.list = slices.Delete(c.list, i, i+1)
	if c.defaults[x.Language] == x {
		delete(c.defaults, x.Language)
	}
	c.mu.Unlock()
	close(x.gone)
	if k := x.current(); k != nil {
		k.proc.Kill()
	}
	return nil
}

// Close ends all contexts.
func (c *Contexts) Close() {
	for _, x := range c.all() {
		_ = c.Delete(x.ID) // somebody else may have
	}
}

// Warm starts the shared contexts of languages and waits until they can run
// code.
func (c *Contexts) Warm(ctx context.Context, langs []string) error {
	for _, l := range langs {
		x, err := c.Shared(l)
		if err == nil {
			err = x.start(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Detach keeps what runs now running when its client leaves: the machine is a
// copy of another, and the client is the other's.
func (c *Contexts) Detach() { c.eachKernel((*kernel).detach) }

// Renew makes kernels draw other random numbers than the machine this one is a
// copy of. It waits for nothing. One that is still starting does not know the
// signal yet, and would die of it.
func (c *Contexts) Renew() {
	for _, x := range c.all() {
		if k := x.current(); k != nil && isDone(k.ready) {
			k.proc.Signal(x.lang.renew)
		}
	}
}

func (c *Contexts) eachKernel(f func(*kernel)) {
	for _, x := range c.all() {
		if k := x.current(); k != nil {
			f(k)
		}
	}
}

func (x *Context) current() *kernel {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.kernel
}

// Interrupt stops the code that runs, if any does.
func (x *Context) Interrupt() {
	if k := x.current(); k != nil {
		k.interruptRunning()
	}
}

// Restart ends the kernel with its state and what it runs; the next code has a
// new one.
func (x *Context) Restart() {
	if k := x.current(); k != nil {
		k.proc.Kill()
		<-k.ended
	}
}

// newID names a context: a random UUID.
func newID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

package hostnet

import (
	"errors"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
)

// ruleset is a change of the table being written: all of it comes into force
// in one moment or none. With counts it sends nothing and counts rules by chain.
type ruleset struct {
	conn   *nftables.Conn
	table  *nftables.Table
	counts map[string]int
	sets   uint32 // named so far, since a set is referred to by number within a change
	err    error
}

// A change of many rules is one message of the socket, and so are its answers.
const batchBuffer = 8 << 20

// maxSetElements is how many fit in one attribute of netlink, which has 64 KiB.
const maxSetElements = 1000

func openTables() (*nftables.Conn, error) {
	return nftables.New(nftables.WithSockOptions(func(c *netlink.Conn) error {
		return errors.Join(c.SetWriteBuffer(batchBuffer), c.SetReadBuffer(batchBuffer))
	}))
}

// transact changes our table in one transaction.
func transact(build func(r *ruleset)) error {
	conn, err := openTables()
	if err != nil {
		return err
	}
	r := &ruleset{conn: conn, table: ourTable()}
	build(r)
	if r.err != nil {
		return r.err
	}
	return conn.Flush()
}

func ourTable() *nftables.Table {
	return &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
}

// counted builds rules without sending them.
func counted(build func(r *ruleset)) map[string]int {
	r := &ruleset{table: ourTable(), counts: map[string]int{}}
	build(r)
	return r.counts
}

func (r *ruleset) dry() bool { return r.counts != nil }

func (r *ruleset) base(name string, kind nftables.ChainType, hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
	return r.add(&nftables.Chain{Name: name, Table: r.table, Type: kind, Hooknum: hook, Priority: priority})
}

// chain is one without a hook. It is empty, whatever was in it.
func (r *ruleset) chain(name string) *nftables.Chain {
	c := r.add(&nftables.Chain{Name: name, Table: r.table})
	if !r.dry() {
		r.conn.FlushChain(c)
	}
	return c
}

func (r *ruleset) add(c *nftables.Chain) *nftables.Chain {
	if r.dry() {
		r.counts[c.Name] = 0
	} else {
		r.conn.AddChain(c)
	}
	return c
}

// removeChain removes a chain that nothing refers to any more, or that is not
// there: it is added first.
func (r *ruleset) removeChain(name string) { r.conn.DelChain(r.chain(name)) }

func (r *ruleset) rule(c *nftables.Chain, parts ...[]expr.Any) {
	if r.dry() {
		r.counts[c.Name]++
		return
	}
	r.conn.AddRule(&nftables.Rule{Table: r.table, Chain: c, Exprs: slices.Concat(parts...)})
}

// named is a set or map as it is known, to refer to it.
func (r *ruleset) named(s nftables.Set) *nftables.Set {
	s.Table = r.table
	return &s
}

func (r *ruleset) addSet(s *nftables.Set) {
	r.sets++
	s.ID = r.sets
	if !r.dry() && r.err == nil {
		r.err = r.conn.AddSet(s, nil)
	}
}

// anonymous is a set of addresses that ends with the rule that uses it.
func (r *ruleset) anonymous(elements []nftables.SetElement) *nftables.Set {
	r.sets++
	s := &nftables.Set{Table: r.table, ID: r.sets, Name: "__set%d", Anonymous: true, Constant: true, Interval: true, KeyType: nftables.TypeIPAddr}
	if !r.dry() && r.err == nil {
		r.err = r.conn.AddSet(s, elements)
	}
	return s
}

// refill replaces what is in a set.
func (r *ruleset) refill(s *nftables.Set, elements []nftables.SetElement) {
	if r.dry() {
		return
	}
	r.conn.FlushSet(s)
	for part := range slices.Chunk(elements, maxSetElements) {
		r.put(s, part...)
	}
}

func (r *ruleset) put(s *nftables.Set, elements ...nftables.SetElement) {
	if !r.dry() && r.err == nil && len(elements) > 0 {
		r.err = r.conn.SetAddElements(s, elements)
	}
}

// take removes elements that are there or not: they are added first.
func (r *ruleset) take(s *nftables.Set, elements ...nftables.SetElement) {
	r.put(s, elements...)
	if !r.dry() && r.err == nil && len(elements) > 0 {
		r.err = r.conn.SetDeleteElements(s, elements)
	}
}

// leadsTo is an element of a map: what has the key goes on in the chain.
func leadsTo(key []byte, chain string) nftables.SetElement {
	return nftables.SetElement{Key: key, VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}}
}

// missing reports a change that failed because what it builds on is not there.
func missing(err error) bool { return errors.Is(err, unix.ENOENT) && !coded(err) }

func coded(err error) bool {
	var e *api.Error
	return errors.As(err, &e)
}

// refusedBy gives a failed change its code, unless it has one. A kernel without
// an expression, a hook or a queue calls it missing.
func refusedBy(err error, what string) error {
	if err == nil || coded(err) {
		return err
	}
	if missing(err) {
		err = errors.Join(unix.EOPNOTSUPP, err)
	}
	return unavailable(err, what)
}

package hold

import (
	"context"

	"gvisor.dev/gvisor/pkg/state"
)

// What follows is the form in which gVisor saves and loads these types. Names and
// fields are part of every checkpoint: whoever changes them raises patchLevel in
// package gvisor.

// StateTypeName implements state.Type.
func (*filesystemType) StateTypeName() string { return "pandastack/hold.filesystemType" }

// StateFields implements state.Type.
func (*filesystemType) StateFields() []string { return []string{} }

// StateSave implements state.SaverLoader.
func (*filesystemType) StateSave(state.Sink) {}

// StateLoad implements state.SaverLoader.
func (*filesystemType) StateLoad(context.Context, state.Source) {}

// StateTypeName implements state.Type.
func (*filesystem) StateTypeName() string { return "pandastack/hold.filesystem" }

// StateFields implements state.Type.
func (*filesystem) StateFields() []string { return []string{"Filesystem"} }

// StateSave implements state.SaverLoader.
func (fs *filesystem) StateSave(sink state.Sink) { sink.Save(0, &fs.Filesystem) }

// StateLoad implements state.SaverLoader.
func (fs *filesystem) StateLoad(_ context.Context, source state.Source) {
	source.Load(0, &fs.Filesystem)
}

// StateTypeName implements state.Type.
func (*holdSocket) StateTypeName() string { return "pandastack/hold.socket" }

// StateFields implements state.Type.
func (*holdSocket) StateFields() []string {
	return []string{"vfsfd", "FileDescriptionDefaultImpl", "DentryMetadataFileDescriptionImpl", "NoLockFD", "SendReceiveTimeout", "fs"}
}

// StateSave implements state.SaverLoader.
func (s *holdSocket) StateSave(sink state.Sink) {
	sink.Save(0, &s.vfsfd)
	sink.Save(1, &s.FileDescriptionDefaultImpl)
	sink.Save(2, &s.DentryMetadataFileDescriptionImpl)
	sink.Save(3, &s.NoLockFD)
	sink.Save(4, &s.SendReceiveTimeout)
	sink.Save(5, &s.fs)
}

// StateLoad implements state.SaverLoader.
func (s *holdSocket) StateLoad(_ context.Context, source state.Source) {
	source.Load(0, &s.vfsfd)
	source.Load(1, &s.FileDescriptionDefaultImpl)
	source.Load(2, &s.DentryMetadataFileDescriptionImpl)
	source.Load(3, &s.NoLockFD)
	source.Load(4, &s.SendReceiveTimeout)
	source.Load(5, &s.fs)
}

func init() {
	state.Register((*filesystemType)(nil))
	state.Register((*filesystem)(nil))
	state.Register((*holdSocket)(nil))
}

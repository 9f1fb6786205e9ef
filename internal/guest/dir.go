package guest

import (
	"context"
	"strings"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest/envdpb"
)

// maxName bounds a name or path that a guest says.
const maxName = 4096

// Stat describes what is at path. Of a symbolic link, type and mode are those
// of what it leads to.
func (c *Client) Stat(ctx context.Context, path, user string) (api.FileInfo, error) {
	if err := checkText(api.CodeFileInvalidPath, "the path", path, user); err != nil {
		return api.FileInfo{}, err
	}
	resp, err := c.fs.Stat(ctx, request(c, user, &envdpb.StatRequest{Path: path}))
	if err != nil {
		return api.FileInfo{}, rpcError(ctx, err, areaFile)
	}
	return oneEntry(resp.Msg.GetEntry())
}

// ListDir lists a directory, and what is in its directories down to depth
// levels, at least 1. More than fits one message is request.too_large.
func (c *Client) ListDir(ctx context.Context, path, user string, depth int) ([]api.FileInfo, error) {
	if err := checkText(api.CodeFileInvalidPath, "the path", path, user); err != nil {
		return nil, err
	}
	depth = min(max(depth, 1), 1024)
	resp, err := c.fs.ListDir(ctx, request(c, user, &envdpb.ListDirRequest{Path: path, Depth: uint32(depth)}))
	if err != nil {
		return nil, rpcError(ctx, err, areaFile)
	}
	out := make([]api.FileInfo, 0, len(resp.Msg.GetEntries()))
	for _, e := range resp.Msg.GetEntries() {
		if info, ok := entry(e); ok {
			out = append(out, info)
		}
	}
	return out, nil
}

// MakeDir makes a directory and its parents, owned by the user. One that is
// there already is file.exists.
func (c *Client) MakeDir(ctx context.Context, path, user string) (api.FileInfo, error) {
	if err := checkText(api.CodeFileInvalidPath, "the path", path, user); err != nil {
		return api.FileInfo{}, err
	}
	resp, err := c.fs.MakeDir(ctx, request(c, user, &envdpb.MakeDirRequest{Path: path}))
	if err != nil {
		return api.FileInfo{}, rpcError(ctx, err, areaFile)
	}
	return oneEntry(resp.Msg.GetEntry())
}

// Remove deletes a file or a tree. Nothing there is success.
func (c *Client) Remove(ctx context.Context, path, user string) error {
	if path == "" {
		return api.Errorf(api.CodeFileInvalidPath, "the path is empty")
	}
	if err := checkText(api.CodeFileInvalidPath, "the path", path, user); err != nil {
		return err
	}
	_, err := c.fs.Remove(ctx, request(c, user, &envdpb.RemoveRequest{Path: path}))
	return rpcError(ctx, err, areaFile)
}

// Move renames a file or directory, making the parents of its new place.
func (c *Client) Move(ctx context.Context, from, to, user string) (api.FileInfo, error) {
	if from == "" || to == "" {
		return api.FileInfo{}, api.Errorf(api.CodeFileInvalidPath, "a path is empty")
	}
	if err := checkText(api.CodeFileInvalidPath, "the path", from, to, user); err != nil {
		return api.FileInfo{}, err
	}
	resp, err := c.fs.Move(ctx, request(c, user, &envdpb.MoveRequest{Source: from, Destination: to}))
	if err != nil {
		return api.FileInfo{}, rpcError(ctx, err, areaFile)
	}
	return oneEntry(resp.Msg.GetEntry())
}

func oneEntry(e *envdpb.EntryInfo) (api.FileInfo, error) {
	info, ok := entry(e)
	if !ok {
		return info, api.Errorf(api.CodeInternal, "the sandbox's daemon gave an answer that makes no sense")
	}
	return info, nil
}

// entry takes over what a guest says of a file, unless it cannot be true.
func entry(e *envdpb.EntryInfo) (api.FileInfo, bool) {
	name, path := e.GetName(), e.GetPath()
	if name == "" || name == "." || name == ".." || len(name) > maxName || len(path) > maxName ||
		strings.ContainsRune(name, 0) || strings.ContainsRune(path, 0) || !strings.HasPrefix(path, "/") ||
		name != "/" && strings.Contains(name, "/") || e.GetSize() < 0 {
		return api.FileInfo{}, false
	}
	info := api.FileInfo{
		Name: name, Path: path, Size: e.GetSize(), Type: "other",
		Mode: clean(e.GetPermissions()), Owner: clean(e.GetOwner()), Group: clean(e.GetGroup()),
	}
	if t := e.GetModifiedTime(); t.IsValid() {
		info.Modified = t.AsTime()
	}
	if target := e.GetSymlinkTarget(); target != "" && len(target) <= maxName {
		info.Target = target
	}
	switch e.GetType() {
	case envdpb.FileType_FILE_TYPE_FILE:
		info.Type = "file"
	case envdpb.FileType_FILE_TYPE_DIRECTORY:
		info.Type = "directory"
	case envdpb.FileType_FILE_TYPE_SYMLINK:
		info.Type = "symlink"
	}
	return info, true
}

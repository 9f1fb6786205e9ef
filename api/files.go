package api

import "time"

// Bounds of the file operations that answer with lists. Beyond them an answer
// says that it was cut rather than grow.
const (
	MaxGlobMatches   = 10_000
	MaxSearchMatches = 10_000
	MaxReplaceFiles  = 10_000
)

// CopyFile copies a file or a tree. Links are copied as links, and what is
// neither file, directory nor link is left out.
type CopyFile struct {
	From      string `json:"from" minLength:"1" maxLength:"4096"`
	To        string `json:"to" minLength:"1" maxLength:"4096" doc:"The path of the copy itself; directories above it are made"`
	Overwrite bool   `json:"overwrite,omitempty" doc:"Replace files that are there; without it one that is there is file.exists"`
}

// ChangeMode sets permissions.
type ChangeMode struct {
	Path      string `json:"path" minLength:"1" maxLength:"4096"`
	Mode      string `json:"mode" pattern:"^[0-7]{3,4}$" doc:"Permissions in octal" example:"0755"`
	Recursive bool   `json:"recursive,omitempty" doc:"Also of everything below; links are left alone"`
}

// ChangeOwner sets the owner, the group, or both.
type ChangeOwner struct {
	Path      string `json:"path" minLength:"1" maxLength:"4096"`
	Owner     string `json:"owner,omitempty" maxLength:"64" doc:"Name or number; empty leaves it"`
	Group     string `json:"group,omitempty" maxLength:"64" doc:"Name or number; empty leaves it, or is the owner's own when the owner is a name"`
	Recursive bool   `json:"recursive,omitempty" doc:"Also of everything below; of links themselves, never of what they lead to"`
}

// MakeLink makes a symbolic link.
type MakeLink struct {
	Path   string `json:"path" minLength:"1" maxLength:"4096" doc:"Where the link is made"`
	Target string `json:"target" minLength:"1" maxLength:"4096" doc:"What it says, word for word; it need not exist"`
}

// LinkTarget is what a symbolic link says.
type LinkTarget struct {
	Path   string `json:"path"`
	Target string `json:"target"`
}

// Changed says how many files and directories an operation changed.
type Changed struct {
	Count int `json:"count"`
}

// Glob finds files by the pattern of their path.
type Glob struct {
	Path    string `json:"path,omitempty" maxLength:"4096" doc:"Where to look; default the working directory of the sandbox"`
	Pattern string `json:"pattern" minLength:"1" maxLength:"1024" doc:"Matched against paths relative to path: * and ? within a name, ** over directories, [a-z], {a,b}" example:"src/**/*.go"`
	Limit   int    `json:"limit,omitempty" minimum:"0" maximum:"10000" doc:"At most so many; default 1000"`
}

// GlobResult is the files that match, in order of their paths.
type GlobResult struct {
	Path      string     `json:"path" doc:"Where was looked, in full"`
	Matches   []FileInfo `json:"matches"`
	Truncated bool       `json:"truncated" doc:"There are more"`
}

// Search finds lines of files, or files by name.
type Search struct {
	Path           string   `json:"path,omitempty" maxLength:"4096" doc:"A directory or one file; default the working directory of the sandbox"`
	Pattern        string   `json:"pattern" minLength:"1" maxLength:"4096" doc:"A regular expression (RE2), or with literal the text itself"`
	Literal        bool     `json:"literal,omitempty"`
	IgnoreCase     bool     `json:"ignore_case,omitempty"`
	Names          bool     `json:"names,omitempty" doc:"Look at the names of files and directories instead of what is in them"`
	Include        []string `json:"include,omitempty" maxItems:"64" doc:"Only files that match one of these globs; one without a slash is for the name alone"`
	Exclude        []string `json:"exclude,omitempty" maxItems:"64" doc:"No files or directories that match one of these globs"`
	Context        int      `json:"context,omitempty" minimum:"0" maximum:"20" doc:"So many lines before and after each match"`
	MaxResults     int      `json:"max_results,omitempty" minimum:"0" maximum:"10000" doc:"Default 1000"`
	TimeoutSeconds float64  `json:"timeout_seconds,omitempty" minimum:"0" maximum:"600" doc:"Default 30; what was found until then is the answer"`
}

// SearchMatch is one line that matches, or with names one file.
type SearchMatch struct {
	Path   string   `json:"path" doc:"In full"`
	Line   int      `json:"line,omitempty" doc:"From 1; none for a name"`
	Column int      `json:"column,omitempty" doc:"Of the first match in the line, in bytes from 1"`
	Text   string   `json:"text,omitempty" doc:"The line, of a long one a part"`
	Before []string `json:"before,omitempty"`
	After  []string `json:"after,omitempty"`
}

// SearchResult is what a search found, by path and line.
type SearchResult struct {
	Path      string        `json:"path" doc:"Where was looked, in full"`
	Matches   []SearchMatch `json:"matches"`
	Truncated bool          `json:"truncated" doc:"There are more than max_results"`
	TimedOut  bool          `json:"timed_out" doc:"The time was over before all files were looked at"`
}

// Replace changes text in files. Each file is replaced as a whole or left as it
// was. Binary files, and those above 8 MiB, are left alone.
type Replace struct {
	Path           string   `json:"path,omitempty" maxLength:"4096" doc:"A directory or one file; default the working directory of the sandbox"`
	Pattern        string   `json:"pattern" minLength:"1" maxLength:"4096" doc:"A regular expression (RE2, ^ and $ match at lines), or with literal the text itself"`
	Replacement    string   `json:"replacement" maxLength:"65536" doc:"With a regular expression $1 or ${name} is a group, and $$ a dollar"`
	Literal        bool     `json:"literal,omitempty"`
	IgnoreCase     bool     `json:"ignore_case,omitempty"`
	Include        []string `json:"include,omitempty" maxItems:"64" doc:"Only files that match one of these globs"`
	Exclude        []string `json:"exclude,omitempty" maxItems:"64" doc:"No files or directories that match one of these globs"`
	DryRun         bool     `json:"dry_run,omitempty" doc:"Only count"`
	TimeoutSeconds float64  `json:"timeout_seconds,omitempty" minimum:"0" maximum:"600" doc:"Default 30; what was done until then stays"`
}

// ReplacedFile is one file with replacements.
type ReplacedFile struct {
	Path  string `json:"path"`
	Count int    `json:"count"`
}

// ReplaceResult says what was replaced, or with dry_run would be.
type ReplaceResult struct {
	Path      string         `json:"path" doc:"Where was looked, in full"`
	Files     []ReplacedFile `json:"files"`
	Count     int            `json:"count" doc:"Replacements altogether"`
	Skipped   int            `json:"skipped" doc:"Files above 8 MiB, which were left alone"`
	Truncated bool           `json:"truncated" doc:"There are more files than one call replaces"`
	TimedOut  bool           `json:"timed_out" doc:"The time was over before all files were looked at"`
	DryRun    bool           `json:"dry_run"`
}

// Extracted says what an archive held.
type Extracted struct {
	Path    string `json:"path" doc:"The directory, in full"`
	Files   int    `json:"files" doc:"Files, directories and links that were made"`
	Bytes   int64  `json:"bytes"`
	Skipped int    `json:"skipped" doc:"Devices and other things that are never made"`
}

// FileEventType is what happened to a file.
type FileEventType string

// The types of FileEvent. Overflow says that events were lost: whoever keeps a
// picture of the directory must look at it anew.
const (
	FileCreate   FileEventType = "create"
	FileWrite    FileEventType = "write"
	FileRemove   FileEventType = "remove"
	FileRename   FileEventType = "rename"
	FileChmod    FileEventType = "chmod"
	FileOverflow FileEventType = "overflow"
)

// FileEvent is one change below a watched directory. A rename is the event of
// the old path; the new one has a create.
type FileEvent struct {
	Type FileEventType `json:"type" enum:"create,write,remove,rename,chmod,overflow"`
	Path string        `json:"path,omitempty" doc:"In full; none of overflow"`
}

// SignFile asks for a URL that works without a key.
type SignFile struct {
	Path           string `json:"path" minLength:"1" maxLength:"4096"`
	Operation      string `json:"operation" enum:"read,write" doc:"read: GET and HEAD of the file; write: PUT that makes or replaces it"`
	User           string `json:"user,omitempty" maxLength:"64" doc:"As the user parameter of the other file operations"`
	ExpiresSeconds int    `json:"expires_seconds,omitempty" minimum:"1" maximum:"604800" doc:"Default 3600, at most seven days"`
}

// SignedFile is a URL that works without a key until it expires.
type SignedFile struct {
	URL       string    `json:"url"`
	Method    string    `json:"method" enum:"GET,PUT"`
	ExpiresAt time.Time `json:"expires_at"`
}

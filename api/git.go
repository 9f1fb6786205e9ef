package api

import "time"

// GitAuth is a name and a password or token for a remote over HTTP. It reaches
// git through a socket that answers once and only for the host of the remote: it
// is never on the sandbox's disk, in an argument or in an environment variable.
type GitAuth struct {
	Username string `json:"username,omitempty" maxLength:"256" doc:"Default git, which servers take beside a token"`
	Host     string `json:"host,omitempty" maxLength:"256" doc:"Fail unless the remote is on this host (with its port, if it has one). What runs in the sandbox can point a remote elsewhere: name it for pull and push"`
	Password string `json:"password" minLength:"1" maxLength:"8192" doc:"A password or token"`
}

// GitRepo names a repository in the sandbox and how git runs there.
type GitRepo struct {
	Path           string  `json:"path,omitempty" maxLength:"4096" doc:"Directory of the repository; default the working directory of the sandbox"`
	User           string  `json:"user,omitempty" maxLength:"64" doc:"Who git runs as; default user"`
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty" minimum:"0" maximum:"3600" doc:"Default 60, for what talks to a remote 600"`
}

// GitClone makes a repository of a remote one.
type GitClone struct {
	GitRepo
	URL    string   `json:"url" minLength:"1" maxLength:"2048" doc:"Without user and password; those go into auth" example:"https://example.com/team/project.git"`
	Branch string   `json:"branch,omitempty" maxLength:"255" doc:"Branch or tag to check out"`
	Depth  int      `json:"depth,omitempty" minimum:"0" doc:"Only so many of the latest commits; 0 is all"`
	Auth   *GitAuth `json:"auth,omitempty"`
}

// GitDiff asks for changes as a patch.
type GitDiff struct {
	GitRepo
	Staged bool     `json:"staged,omitempty" doc:"What is staged, against the last commit; else what is not"`
	From   string   `json:"from,omitempty" maxLength:"255" doc:"Commit or branch to compare with"`
	To     string   `json:"to,omitempty" maxLength:"255" doc:"With from: compare two commits"`
	Paths  []string `json:"paths,omitempty" maxItems:"1000"`
}

// GitAdd stages changes.
type GitAdd struct {
	GitRepo
	Paths []string `json:"paths,omitempty" maxItems:"1000" doc:"Relative to the repository's directory; none is everything"`
}

// GitCommitRequest commits what is staged.
type GitCommitRequest struct {
	GitRepo
	Message    string `json:"message" minLength:"1" maxLength:"65536"`
	All        bool   `json:"all,omitempty" doc:"Stage changes of files that are tracked first"`
	AllowEmpty bool   `json:"allow_empty,omitempty"`
	Name       string `json:"author_name,omitempty" maxLength:"256" doc:"Author and committer; default of git's configuration"`
	Email      string `json:"author_email,omitempty" maxLength:"256"`
}

// GitBranchRequest lists branches, or makes or deletes one.
type GitBranchRequest struct {
	GitRepo
	Create string `json:"create,omitempty" maxLength:"255" doc:"Name of a branch to make"`
	From   string `json:"from,omitempty" maxLength:"255" doc:"Where the new one starts; default the current commit"`
	Delete string `json:"delete,omitempty" maxLength:"255" doc:"Name of a branch to delete"`
	Force  bool   `json:"force,omitempty" doc:"Delete also what is not merged"`
}

// GitCheckout changes to a branch, tag or commit.
type GitCheckout struct {
	GitRepo
	Ref    string `json:"ref" minLength:"1" maxLength:"255"`
	Create bool   `json:"create,omitempty" doc:"Make the branch first"`
}

// GitSync is a pull or a push.
type GitSync struct {
	GitRepo
	Remote      string   `json:"remote,omitempty" maxLength:"255" doc:"Default origin"`
	Branch      string   `json:"branch,omitempty" maxLength:"255" doc:"Default the current branch"`
	Rebase      bool     `json:"rebase,omitempty" doc:"Pull: put local commits on top instead of merging"`
	Force       bool     `json:"force,omitempty" doc:"Push: replace the remote branch, unless somebody else has changed it"`
	SetUpstream bool     `json:"set_upstream,omitempty" doc:"Push: remember the branch for later pulls"`
	Auth        *GitAuth `json:"auth,omitempty"`
}

// GitLogRequest asks for commits.
type GitLogRequest struct {
	GitRepo
	Ref   string   `json:"ref,omitempty" maxLength:"255" doc:"Where to start; default the current commit"`
	Limit int      `json:"limit,omitempty" minimum:"0" maximum:"1000" doc:"Default 50"`
	Skip  int      `json:"skip,omitempty" minimum:"0"`
	Paths []string `json:"paths,omitempty" maxItems:"1000" doc:"Only commits that changed these"`
}

// GitFile is a file that differs from the last commit.
type GitFile struct {
	Path     string `json:"path"`
	From     string `json:"from,omitempty" doc:"Where it was before it was renamed or copied"`
	Staged   string `json:"staged" enum:"unmodified,modified,added,deleted,renamed,copied,type_changed,untracked,conflict" doc:"What is staged of it"`
	Worktree string `json:"worktree" enum:"unmodified,modified,added,deleted,renamed,copied,type_changed,untracked,conflict" doc:"What is not"`
}

// GitStatus is how a repository stands.
type GitStatus struct {
	Branch    string    `json:"branch,omitempty" doc:"None when no branch is checked out"`
	Commit    string    `json:"commit,omitempty" doc:"None before the first commit"`
	Upstream  string    `json:"upstream,omitempty"`
	Ahead     int       `json:"ahead" doc:"Commits that the upstream lacks"`
	Behind    int       `json:"behind" doc:"Commits that only the upstream has"`
	Clean     bool      `json:"clean"`
	Files     []GitFile `json:"files"`
	Truncated bool      `json:"truncated" doc:"There are more files"`
}

// GitPatch is changes in git's patch format.
type GitPatch struct {
	Diff      string `json:"diff"`
	Truncated bool   `json:"truncated" doc:"The patch is longer; name paths to get it in parts"`
}

// GitCommit is one commit.
type GitCommit struct {
	ID      string    `json:"id"`
	Parents []string  `json:"parents"`
	Author  string    `json:"author"`
	Email   string    `json:"email"`
	Time    time.Time `json:"time"`
	Subject string    `json:"subject"`
	Body    string    `json:"body,omitempty"`
}

// GitLog is commits, newest first.
type GitLog struct {
	Commits   []GitCommit `json:"commits"`
	Truncated bool        `json:"truncated" doc:"The list was cut before the limit, because it is too long"`
}

// GitBranch is one branch.
type GitBranch struct {
	Name     string `json:"name"`
	Commit   string `json:"commit"`
	Current  bool   `json:"current"`
	Upstream string `json:"upstream,omitempty"`
	Remote   bool   `json:"remote" doc:"A branch of a remote, as last seen"`
}

// GitBranches is the branches of a repository.
type GitBranches struct {
	Branches []GitBranch `json:"branches"`
}

package api

// LSPLanguageList is every language that there can be a language server for.
type LSPLanguageList struct {
	Languages []LSPLanguage `json:"languages"`
}

// LSPLanguage is a language with the servers that are known for it. A sandbox has
// one when one of the programs is installed in it.
type LSPLanguage struct {
	ID      string      `json:"id" example:"python"`
	Aliases []string    `json:"aliases" doc:"Other names that are accepted"`
	Servers []LSPServer `json:"servers" doc:"In order of preference"`
}

// LSPServer is a program that speaks the protocol on its standard streams.
type LSPServer struct {
	Program string `json:"program" example:"pylsp"`
	Install string `json:"install" doc:"One way to install it in a sandbox or a template"`
}

// Search runs in a worker, and browsers start no worker from a file on disk: there a hidden frame serves as one.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.onmessage = this.onerror = null
      this.waiting = []
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.documentElement.append(this.frame)
      this.inside = this.frame.contentWindow
      this.inside.postMessage = (data) => setTimeout(() => this.onmessage?.({ data }))
      const script = this.inside.document.createElement("script")
      script.src = url
      script.onload = () => {
        const waiting = this.waiting
        this.waiting = null
        waiting.forEach((data) => this.postMessage(data))
      }
      script.onerror = (event) => this.onerror?.(event)
      this.inside.document.body.append(script)
    }
    postMessage(data) {
      if (this.waiting) this.waiting.push(data)
      else setTimeout(() => this.inside.onmessage?.({ data }))
    }
    terminate() {
      this.frame.remove()
    }
  }
}
